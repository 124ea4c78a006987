"""A row has the same logits and choice, bit by bit, in any company, place, chunking, cache layout and thread count.

Every test has the same form: sequences are run one row at a time, alone, and then again many times in random mixes
of 1 to 64 rows; each row that was compared must give the very bits of its lonely run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gearshift import _kernel
from tests.kernel.running import Bench, Loaded, Row, Sampling
from tests.models_for_tests.real import GEMMA, REAL_MODELS, SMOLLM2
from tests.models_for_tests.synthetic import VARIANTS, Synthetic
from tests.reference.corpus import corpus_tokens

RealModel = Callable[[str], Loaded]
MOST_ROWS = 64

Key = tuple[int, int]
"""Sequence and position."""


@dataclass(slots=True)
class Sequences:
    """What is run, and what came out when it was run alone.

    probes: positions whose results are compared, per sequence.
    """

    tokens: list[NDArray[np.int64]]
    probes: list[set[int]]
    seed: int = 0
    logits: dict[Key, NDArray[np.uint32]] = field(default_factory=dict[Key, NDArray[np.uint32]])
    choices: dict[Key, tuple[int, bytes]] = field(default_factory=dict[Key, tuple[int, bytes]])

    def sampling(self, row: Row) -> Sampling:
        """Fixed for a position of a sequence, different everywhere; one in four is greedy."""
        rng = np.random.default_rng([self.seed, row.sequence, row.position])
        if rng.random() < 0.25:
            return Sampling()
        return Sampling(
            temperature=float(rng.uniform(0.3, 1.5)),
            top_k=int(rng.choice([0, 1, 5, 40, 300])),
            top_p=float(rng.choice([1.0, 0.95, 0.5])),
            min_p=float(rng.choice([0.0, 0.02])),
            seed=int(rng.integers(0, 1 << 63)),
        )

    def row(self, sequence: int, position: int) -> Row:
        token = int(self.tokens[sequence][position])
        return Row(sequence, position, token, position in self.probes[sequence])

    def run(self, bench: Bench, rows: list[Row]) -> list[tuple[Key, NDArray[np.uint32], tuple[int, bytes]]]:
        """One step; results of the rows that chose."""
        choosing = [row for row in rows if row.choose]
        result = bench.step(rows, [self.sampling(row) for row in choosing])
        assert result.logits is not None
        assert np.isfinite(result.logits).all()
        return [
            (
                (row.sequence, row.position),
                result.logits[i].view(np.uint32),
                (int(result.ids[i]), result.logprobs[i].tobytes()),
            )
            for i, row in enumerate(choosing)
        ]

    def run_alone(self, bench: Bench) -> None:
        """One row per step."""
        for sequence, tokens in enumerate(self.tokens):
            for position in range(len(tokens)):
                for key, logits, choice in self.run(bench, [self.row(sequence, position)]):
                    self.logits[key] = logits.copy()
                    self.choices[key] = choice

    def run_mixed(self, bench: Bench, rng: np.random.Generator, most_rows: int = MOST_ROWS) -> None:
        """Random rows per step, each sequence in random chunks, their rows shuffled among each other."""
        done = [0] * len(self.tokens)
        compared = 0
        while open_ := [i for i, tokens in enumerate(self.tokens) if done[i] < len(tokens)]:
            wanted = int(rng.integers(1, most_rows + 1))
            taken: list[int] = rng.choice(np.array(open_), size=wanted).tolist()
            rows: list[Row] = []
            for sequence in taken:
                if done[sequence] < len(self.tokens[sequence]):
                    rows.append(self.row(sequence, done[sequence]))
                    done[sequence] += 1
            for key, logits, choice in self.run(bench, rows):
                assert np.array_equal(logits, self.logits[key]), difference(key, rows, logits, self.logits[key])
                assert choice == self.choices[key], f"{key} chose {choice}, alone {self.choices[key]}"
                compared += 1
        assert compared == len(self.logits)


def difference(key: Key, rows: list[Row], logits: NDArray[np.uint32], alone: NDArray[np.uint32]) -> str:
    places = np.flatnonzero(logits != alone)
    ours, lonely = logits.view(np.float32)[places[0]], alone.view(np.float32)[places[0]]
    return (
        f"sequence {key[0]}, position {key[1]} in a step of {len(rows)} rows: {len(places)} of {len(alone)} logits "
        f"differ, first at id {places[0]}: {ours}, alone {lonely}"
    )


def random_sequences(vocab: int, lengths: list[int], seed: int) -> Sequences:
    """Random tokens, every position compared."""
    rng = np.random.default_rng(seed)
    return Sequences([rng.integers(0, vocab, n) for n in lengths], [set(range(n)) for n in lengths], seed)


def bench_for(loaded: Loaded, sequences: Sequences, threads: int, seed: int, isa: str = "") -> Bench:
    longest = max(len(tokens) for tokens in sequences.tokens)
    return Bench(
        loaded.model(isa), loaded.shape.vocab, longest, len(sequences.tokens), _kernel.Threads(threads), seed=seed
    )


def check(loaded: Loaded, sequences: Sequences, runs: int, isa: str = "", most_rows: int = MOST_ROWS) -> None:
    """Alone on the best path with one thread, then `runs` mixes with one, two and three threads in turn."""
    sequences.run_alone(bench_for(loaded, sequences, threads=1, seed=1))
    for run in range(runs):
        bench = bench_for(loaded, sequences, threads=1 + run % 3, seed=100 + run, isa=isa)
        sequences.run_mixed(bench, np.random.default_rng([sequences.seed, run]), most_rows)


def test_mixed_rows_of_smollm2(real_model: RealModel) -> None:
    loaded = real_model(SMOLLM2)
    check(loaded, random_sequences(loaded.shape.vocab, [40, 5, 33, 1, 20], seed=21), runs=3)


def test_mixed_rows_of_gemma(real_model: RealModel) -> None:
    loaded = real_model(GEMMA)
    check(loaded, random_sequences(loaded.shape.vocab, [33, 3, 10], seed=22), runs=2)


@pytest.mark.parametrize("name", VARIANTS)
def test_mixed_rows_of_every_architecture(
    name: str, synthetic_model: Callable[[Synthetic], tuple[Path, Loaded]]
) -> None:
    _, loaded = synthetic_model(VARIANTS[name])
    check(loaded, random_sequences(loaded.shape.vocab, [150, 3, 64, 33, 97, 1, 20], seed=23), runs=4)


def run_in_chunks(bench: Bench, tokens: NDArray[np.int64], probes: set[int], chunks: list[int]) -> dict[int, bytes]:
    """Bits of the probed positions' logits."""
    found: dict[int, bytes] = {}
    begin = 0
    for chunk in chunks:
        rows = [Row(0, p, int(tokens[p]), p in probes) for p in range(begin, min(begin + chunk, len(tokens)))]
        result = bench.step(rows)
        assert result.logits is not None
        for row, logits in zip([row for row in rows if row.choose], result.logits, strict=True):
            found[row.position] = logits.tobytes()
        begin += chunk
    assert set(found) == probes
    return found


def random_chunks(rng: np.random.Generator, count: int, most: int) -> list[int]:
    chunks: list[int] = []
    while sum(chunks) < count:
        chunks.append(int(rng.integers(1, most + 1)))
    return chunks


def check_chunks(loaded: Loaded, tokens: NDArray[np.int64], probes: set[int], runs: int, most: int, seed: int) -> None:
    """The same prompt in equal chunks and in random ones."""

    def fresh(threads: int, layout: int) -> Bench:
        return Bench(loaded.model(), loaded.shape.vocab, len(tokens), 1, _kernel.Threads(threads), seed=layout)

    equal = [256] * -(-len(tokens) // 256)
    expected = run_in_chunks(fresh(2, 0), tokens, probes, equal)
    for run in range(runs):
        chunks = random_chunks(np.random.default_rng([seed, run]), len(tokens), most)
        found = run_in_chunks(fresh(1 + run % 2, 1 + run), tokens, probes, chunks)
        differing = [position for position in sorted(probes) if found[position] != expected[position]]
        assert not differing, f"positions {differing} differ when the prompt is cut into {chunks}"


def test_a_prompt_in_one_large_step(real_model: RealModel) -> None:
    """Several hundred rows at once, against rows alone at first and ever larger chunks then."""
    loaded = real_model(SMOLLM2)
    tokens = corpus_tokens(SMOLLM2, 300)
    probes = {0, 1, 30, 31, 32, 63, 64, 127, 128, 255, 256, 298, 299}

    def run(threads: int, chunks: list[int]) -> dict[int, bytes]:
        bench = Bench(loaded.model(), loaded.shape.vocab, len(tokens), 1, _kernel.Threads(threads), seed=threads)
        return run_in_chunks(bench, tokens, probes, chunks)

    expected = run(1, [*[1] * 34, 2, 4, 8, 16, 64, 172])
    assert run(1, [300]) == expected
    assert run(2, [300]) == expected


def test_gemma_at_the_borders_of_its_window(real_model: RealModel) -> None:
    """Local layers see 512 positions: chunks that end before, at and after each border."""
    loaded = real_model(GEMMA)
    probes = {0, 510, 511, 512, 513, 543, 544, 767, 1022, 1023, 1024, 1025, 1055, 1099}
    check_chunks(loaded, corpus_tokens(GEMMA, 1100), probes, runs=1, most=200, seed=31)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", REAL_MODELS)
def test_thousands_of_mixed_rows(name: str, real_model: RealModel) -> None:
    loaded = real_model(name)
    lengths = [150, 90, 64, 33, 32, 7, 1, 120] if name == SMOLLM2 else [100, 33, 40, 1]
    for seed in range(3):
        check(loaded, random_sequences(loaded.shape.vocab, lengths, seed=40 + seed), runs=6)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", REAL_MODELS)
def test_long_prompts_cut_at_random_places(name: str, real_model: RealModel) -> None:
    rng = np.random.default_rng(51)
    probes = set(rng.integers(0, 4096, 60).tolist()) | {4095}
    check_chunks(real_model(name), corpus_tokens(name, 4096), probes, runs=4, most=400, seed=52)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_gemma_over_its_full_window(real_model: RealModel) -> None:
    """32,768 positions of random tokens, in equal and in random chunks."""
    loaded = real_model(GEMMA)
    tokens = np.random.default_rng(61).integers(0, loaded.shape.vocab, loaded.shape.context)
    probes = {511, 512, 1023, 8191, 8192, 16384, 20000, 32766, 32767}
    check_chunks(loaded, tokens, probes, runs=1, most=700, seed=62)
