"""The kernel's logits against the float32 reference, and its error against that of a bfloat16 run.

The bfloat16 run is the reference itself with every stored value rounded (tests/reference/rounding.py). How true that
emulation is: on the first 576 tokens of the GPL's text it has 1.753% logit error on SmolLM2 (11.5% in the worst row),
where a PyTorch bfloat16 run of the same model was measured at 1.75% (11%) on licence prose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kernel.running import Bench, Loaded, Row
from tests.models_for_tests.real import GEMMA, REAL_MODELS, SMOLLM2, stored_reference
from tests.models_for_tests.synthetic import TYPES, VARIANTS, Synthetic
from tests.reference.corpus import LONG, SHORT, corpus_tokens
from tests.reference.decoder import Decoder
from tests.reference.measures import Comparison
from tests.reference.rounding import bfloat16
from tests.reference.weights import ReferenceFile

ROWS = 64
SYNTHETIC_TOKENS = 160

# At most the error of a bfloat16 run. Measured on the short text: Gemma 1.04% against 1.22%, SmolLM2 0.94% against
# 1.40%; Gemma on the whole corpus: 1.09% against 1.26%. What is left of Gemma's is mostly its Q6_K and Q8_0 weights,
# which keep 0.5 to 0.6% weight error; bfloat16 has 0.17%.
MOST_OF_BFLOAT16 = {SMOLLM2: 1.0, GEMMA: 1.0}

# Random models err more than trained ones, so each is judged by its own bfloat16 run. Measured: 4-bit types 0.91 to
# 0.95 of its error, types that are packed in 8 bits 1.4 to 2.0 times.
MOST_SYNTHETIC = {4: 1.1, 8: 2.2}

LEAST_TOP1 = 0.97
MOST_PERPLEXITY_CHANGE = 0.01


def compare_real(name: str, loaded: Loaded, count: int) -> tuple[Comparison, Comparison]:
    """The kernel's run and the bfloat16 run, each against float32."""
    tokens = corpus_tokens(name, count)
    following = np.append(tokens[1:], -1)
    exact, rounded = stored_reference(name), stored_reference(name, "bfloat16")
    states, rounded_states = exact.states(tokens), rounded.states(tokens)
    bench = Bench(loaded.model(), loaded.shape.vocab, count)
    ours, bf16 = Comparison(), Comparison()
    for begin in range(0, count, ROWS):
        end = begin + ROWS
        reference = exact.logits(states[begin:end])
        result = bench.prompt(tokens[begin:end], begin=begin, choose=True)
        assert result is not None and result.logits is not None
        assert np.array_equal(result.ids, result.logits.argmax(axis=1))
        ours.add(result.logits, reference, following[begin:end])
        bf16.add(rounded.logits(rounded_states[begin:end]), reference, following[begin:end])
    print(f"\n{name}\n  kernel:   {ours}\n  bfloat16: {bf16}")
    return ours, bf16


def check_real(name: str, loaded: Loaded, count: int) -> None:
    ours, bf16 = compare_real(name, loaded, count)
    assert ours.error <= MOST_OF_BFLOAT16[name] * bf16.error, f"kernel: {ours}; bfloat16: {bf16}"
    assert ours.top1 >= LEAST_TOP1, str(ours)
    assert abs(ours.perplexity_change) <= MOST_PERPLEXITY_CHANGE, str(ours)


@pytest.mark.parametrize("name", REAL_MODELS)
def test_real_model_is_as_good_as_bfloat16(name: str, real_model: Callable[[str], Loaded]) -> None:
    check_real(name, real_model(name), SHORT)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", REAL_MODELS)
def test_real_model_is_as_good_as_bfloat16_on_the_whole_corpus(name: str, real_model: Callable[[str], Loaded]) -> None:
    check_real(name, real_model(name), LONG)


def synthetic_comparison(path: Path, loaded: Loaded, vocab: int) -> tuple[Comparison, Comparison]:
    """As `compare_real`, on random tokens."""
    tokens = np.random.default_rng(11).integers(0, vocab, SYNTHETIC_TOKENS)
    following = np.append(tokens[1:], -1)
    file = ReferenceFile(path)
    decoder, rounded = Decoder(file), Decoder(file, bfloat16)
    reference = decoder.logits(decoder.hidden(tokens))
    bench = Bench(loaded.model(), vocab, SYNTHETIC_TOKENS)
    result = bench.step([Row(0, i, token) for i, token in enumerate(tokens.tolist())])
    assert result.logits is not None
    ours, bf16 = Comparison(), Comparison()
    ours.add(result.logits, reference, following)
    bf16.add(rounded.logits(rounded.hidden(tokens)), reference, following)
    print(f"\n  kernel:   {ours}\n  bfloat16: {bf16}")
    return ours, bf16


SyntheticModel = Callable[[Synthetic], tuple[Path, Loaded]]


def check_synthetic(model: Synthetic, opened: tuple[Path, Loaded]) -> None:
    path, loaded = opened
    ours, bf16 = synthetic_comparison(path, loaded, model.vocab)
    bits = max(section[4] for section in loaded.weights.tensors.values() if section[4] != 32)
    assert ours.error <= MOST_SYNTHETIC[bits] * bf16.error, f"kernel: {ours}; bfloat16: {bf16}"


@pytest.mark.parametrize("name", VARIANTS)
def test_every_architecture(name: str, synthetic_model: SyntheticModel) -> None:
    check_synthetic(VARIANTS[name], synthetic_model(VARIANTS[name]))


@pytest.mark.parametrize("kind", TYPES)
def test_every_tensor_type(kind: str, synthetic_model: SyntheticModel) -> None:
    model = replace(VARIANTS["llama"], kind=kind, embedding=kind)
    check_synthetic(model, synthetic_model(model))
