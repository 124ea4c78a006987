"""Every ISA path that this machine grants gives the same bits as the best one, on real and synthetic models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gearshift import _kernel
from tests.kernel.running import Loaded
from tests.kernel.test_invariance import Sequences, bench_for, random_sequences
from tests.models_for_tests.real import GEMMA, REAL_MODELS, SMOLLM2
from tests.models_for_tests.synthetic import TYPES, VARIANTS, Synthetic
from tests.reference.corpus import corpus_tokens

PATHS = _kernel.isa_paths()


def check_paths(loaded: Loaded, sequences: Sequences, runs: int, most_rows: int) -> None:
    sequences.run_alone(bench_for(loaded, sequences, threads=2, seed=1))
    for path in PATHS[1:]:
        for run in range(runs):
            bench = bench_for(loaded, sequences, threads=2 - run % 2, seed=200 + run, isa=path)
            assert bench.model.isa == path
            sequences.run_mixed(bench, np.random.default_rng([71, run]), most_rows)


def test_portable_code_runs_everywhere() -> None:
    assert PATHS[-1] == "portable"
    assert len(set(PATHS)) == len(PATHS)


def test_the_best_path_is_the_default(synthetic_model: Callable[[Synthetic], tuple[Path, Loaded]]) -> None:
    _, loaded = synthetic_model(VARIANTS["llama"])
    assert loaded.model().isa == PATHS[0]


def test_an_unknown_path_is_refused_by_name(synthetic_model: Callable[[Synthetic], tuple[Path, Loaded]]) -> None:
    _, loaded = synthetic_model(VARIANTS["llama"])
    with pytest.raises(ValueError, match="sse9"):
        loaded.model("sse9")


@pytest.mark.parametrize("name", VARIANTS)
def test_paths_agree_on_every_architecture(
    name: str, synthetic_model: Callable[[Synthetic], tuple[Path, Loaded]]
) -> None:
    _, loaded = synthetic_model(VARIANTS[name])
    check_paths(loaded, random_sequences(loaded.shape.vocab, [70, 33, 5], seed=72), runs=2, most_rows=40)


@pytest.mark.parametrize("kind", TYPES)
def test_paths_agree_on_every_tensor_type(
    kind: str, synthetic_model: Callable[[Synthetic], tuple[Path, Loaded]]
) -> None:
    _, loaded = synthetic_model(Synthetic(kind=kind, embedding=kind))
    check_paths(loaded, random_sequences(loaded.shape.vocab, [40, 9], seed=73), runs=1, most_rows=24)


@pytest.mark.parametrize("name", REAL_MODELS)
def test_paths_agree_on_real_models(name: str, real_model: Callable[[str], Loaded]) -> None:
    """Few rows: the portable path is slow."""
    loaded = real_model(name)
    tokens = corpus_tokens(name, 30 if name == SMOLLM2 else 12)
    check_paths(loaded, Sequences([tokens], [set(range(len(tokens)))], seed=74), runs=1, most_rows=20)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", REAL_MODELS)
def test_paths_agree_on_longer_texts(name: str, real_model: Callable[[str], Loaded]) -> None:
    loaded = real_model(name)
    count = 600 if name == GEMMA else 400
    tokens = corpus_tokens(name, count)
    probes = {*range(0, count, 37), *range(505, min(520, count)), count - 1}
    sequences = Sequences([tokens, tokens[100:180]], [probes, set(range(0, 80, 9))], seed=75)
    check_paths(loaded, sequences, runs=2, most_rows=64)
