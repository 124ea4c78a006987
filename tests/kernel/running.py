"""Runs the kernel for tests: a loaded model, sequences with scattered cache blocks, and steps over any mix of rows.

It goes the way that the engine goes (our reader, our packing, our cache folder), so that a comparison with the
reference judges all of it. What is expected of the results is the tests' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gearshift import _kernel
from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.shape import ModelShape, shape_of
from gearshift.engine.local.weights import Weights, load_weights

I32 = NDArray[np.int32]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model file made ready for the kernel."""

    shape: ModelShape
    weights: Weights

    @classmethod
    def open(cls, path: Path) -> Loaded:
        with Gguf.open(path) as gguf:
            return cls(shape_of(gguf), load_weights(gguf))

    def model(self, isa: str = "") -> _kernel.Model:
        return _kernel.Model(self.weights.mapping, self.shape.config(), dict(self.weights.tensors), isa)


@dataclass(frozen=True, slots=True)
class Row:
    """One token position of one sequence. `choose` asks for a token and logits after it."""

    sequence: int
    position: int
    token: int
    choose: bool = True


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen; greedy unless told otherwise."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Result:
    """What a step gave, one entry per row that chose. `logits` is None when they were not asked for."""

    ids: I32
    logprobs: F32
    logits: F32 | None


@dataclass(slots=True)
class Bench:
    """A model with a cache, threads and block tables of `sequences` sequences of up to `tokens` tokens.

    The blocks of a sequence lie in random places, so that no result may depend on where they lie.
    """

    model: _kernel.Model
    vocab: int
    tokens: int
    sequences: int = 1
    threads: _kernel.Threads = field(default_factory=lambda: _kernel.Threads(2))
    seed: int = 0
    cache: _kernel.Cache = field(init=False)
    tables: I32 = field(init=False)

    def __post_init__(self) -> None:
        width = -(-self.tokens // _kernel.BLOCK_TOKENS)
        blocks = np.random.default_rng(self.seed).permutation(width * self.sequences).astype(np.int32)
        self.tables = blocks.reshape(self.sequences, width)
        self.cache = _kernel.Cache(self.model, len(blocks))

    def step(self, rows: Sequence[Row], sampling: Sequence[Sampling] | None = None, want_logits: bool = True) -> Result:
        """Run rows; `sampling` has one entry per row that chooses."""
        chosen = np.array([i for i, row in enumerate(rows) if row.choose], np.int32)
        count = len(chosen)
        how = sampling if sampling is not None else [GREEDY] * count
        logits = np.full((count, self.vocab), np.nan, np.float32) if want_logits else None
        zeros, floats = np.zeros(count, np.int32), np.zeros(count, np.float32)
        ids, logprobs, _, _ = self.model.step(
            self.cache,
            self.threads,
            np.array([row.token for row in rows], np.int32),
            np.array([row.position for row in rows], np.int32),
            np.array([row.sequence for row in rows], np.int32),
            self.tables,
            chosen,
            temperature=np.array([s.temperature for s in how], np.float32),
            top_k=np.array([s.top_k for s in how], np.int32),
            top_p=np.array([s.top_p for s in how], np.float32),
            min_p=np.array([s.min_p for s in how], np.float32),
            seed=np.array([s.seed for s in how], np.uint64),
            choice=zeros,
            presence_penalty=floats,
            frequency_penalty=floats,
            repetition_penalty=np.ones(count, np.float32),
            count_offsets=np.zeros(count + 1, np.int32),
            count_ids=np.zeros(0, np.int32),
            count_values=np.zeros(0, np.int32),
            bias_offsets=np.zeros(count + 1, np.int32),
            bias_ids=np.zeros(0, np.int32),
            bias_values=np.zeros(0, np.float32),
            mask_index=np.full(count, -1, np.int32),
            masks=np.zeros((0, -(-self.vocab // 32)), np.uint32),
            logits=logits,
        )
        return Result(ids, logprobs, logits)

    def prompt(
        self, tokens: NDArray[np.int64], sequence: int = 0, begin: int = 0, chunk: int = 128, choose: bool = False
    ) -> Result | None:
        """Run tokens from position `begin` on in chunks; results of the last chunk, when rows choose."""
        result = None
        for at in range(0, len(tokens), chunk):
            part = tokens[at : at + chunk].tolist()
            result = self.step(
                [Row(sequence, begin + at + i, token, choose) for i, token in enumerate(part)], want_logits=choose
            )
        return result
