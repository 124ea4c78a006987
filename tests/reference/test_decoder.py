"""The reference itself, against llama.cpp: a judge must be judged first.

Expected logits lie in `llama_cpp_logits.json`; they come from llama.cpp with all tensors written as float32 and a
float32 cache. Gemma's differ by 0.03% because llama.cpp looks its GELU up in a float16 table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models_for_tests.real import GEMMA, SMOLLM2, stored_reference
from tests.models_for_tests.synthetic import VARIANTS, write_synthetic
from tests.reference.corpus import SHORT, corpus_tokens
from tests.reference.decoder import Decoder
from tests.reference.rounding import bfloat16
from tests.reference.weights import F32, ReferenceFile

EXPECTED: dict[str, Any] = json.loads((Path(__file__).parent / "llama_cpp_logits.json").read_text())["models"]
SYNTHETIC_TOKENS = 160


def compare(expected: dict[str, Any], logits: F32, gemma: bool) -> None:
    rows = [row for row in expected["rows"] if row["position"] < len(logits)]
    assert len(rows) >= 4
    found = np.array([logits[row["position"], expected["ids"]] for row in rows])
    wanted = np.array([row["logits"] for row in rows])
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert error < (1e-3 if gemma else 2e-5)
    assert [int(logits[row["position"]].argmax()) for row in rows] == [row["best"] for row in rows]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_architecture_agrees_with_llama_cpp(name: str, tmp_path: Path) -> None:
    model = VARIANTS[name]
    decoder = Decoder(ReferenceFile(write_synthetic(tmp_path / "model.gguf", model)))
    tokens = np.random.default_rng(11).integers(0, model.vocab, SYNTHETIC_TOKENS)
    compare(EXPECTED[name], decoder.logits(decoder.hidden(tokens)), model.architecture == "gemma3")


@pytest.mark.parametrize("name", [SMOLLM2, GEMMA])
def test_real_models_agree_with_llama_cpp(name: str) -> None:
    reference = stored_reference(name)
    states = reference.states(corpus_tokens(name, SHORT))
    compare(EXPECTED[name], reference.logits(states), name == GEMMA)


def test_rounding_to_bfloat16_is_to_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, 1.005, -1.00390625, 0.0, 257.0], np.float32)
    expected = np.array([1.0, 1.0, 1.015625, 1.0078125, -1.0, 0.0, 256.0], np.float32)
    assert np.array_equal(bfloat16(values), expected)
