"""Bare kernel steps with greedy choices: what the kernel arm and the long-context arm share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift import _kernel
from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.shape import shape_of
from gearshift.engine.local.weights import PLAIN_BITS, load_weights

PREFILL_CHUNK = 512

Rows = Sequence[tuple[int, int, int]]
"""(sequence, position, token)"""


def greedy_arguments(count: int, vocab: int) -> dict[str, NDArray[Any]]:
    """The arguments of `Model.step` about greedy choices of `count` rows; the same for every step."""
    none = np.zeros(0, np.int32)
    return {
        "temperature": np.zeros(count, np.float32),
        "top_k": np.zeros(count, np.int32),
        "top_p": np.ones(count, np.float32),
        "min_p": np.zeros(count, np.float32),
        "seed": np.zeros(count, np.uint64),
        "choice": np.zeros(count, np.int32),
        "presence_penalty": np.zeros(count, np.float32),
        "frequency_penalty": np.zeros(count, np.float32),
        "repetition_penalty": np.ones(count, np.float32),
        "count_offsets": np.zeros(count + 1, np.int32),
        "count_ids": none,
        "count_values": none,
        "bias_offsets": np.zeros(count + 1, np.int32),
        "bias_ids": none,
        "bias_values": np.zeros(0, np.float32),
        "mask_index": np.full(count, -1, np.int32),
        "masks": np.zeros((0, (vocab + 31) // 32), np.uint32),
    }


def step_read_bytes(path: str) -> int:
    """Bytes of weights that a step must read: all matrices, the embedding only when it is the head as well."""
    with Gguf.open(path) as gguf:
        tied = shape_of(gguf).tied_head
        sections = load_weights(gguf).tensors
    return sum(
        size
        for name, (_, size, _, _, bits) in sections.items()
        if bits != PLAIN_BITS and (name != "token_embd.weight" or tied)
    )


class Stepper:
    """Runs rows through a model over one cache."""

    def __init__(self, model: _kernel.Model, cache: _kernel.Cache, threads: _kernel.Threads, vocab: int) -> None:
        self.model = model
        self._cache = cache
        self._threads = threads
        self._vocab = vocab
        self._greedy: dict[int, dict[str, NDArray[Any]]] = {}

    def step(self, tables: NDArray[np.int32], rows: Rows, chosen: NDArray[np.int32]) -> NDArray[np.int32]:
        """One step; the greedy tokens after the chosen rows."""
        arguments = self._greedy.get(len(chosen))
        if arguments is None:
            arguments = self._greedy[len(chosen)] = greedy_arguments(len(chosen), self._vocab)
        columns = np.array(rows, np.int32).T.copy()
        ids, *_ = self.model.step(
            self._cache,
            self._threads,
            tokens=columns[2],
            positions=columns[1],
            sequences=columns[0],
            tables=tables,
            chosen=chosen,
            **arguments,  # pyright: ignore[reportArgumentType]
        )
        return ids

    def prefill(self, tables: NDArray[np.int32], stream: int, ids: Sequence[int], first: int = 0) -> int:
        """Compute `ids` at positions from `first` on, in chunks; the token after the last one."""
        token = -1
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            chosen = np.array([len(chunk) - 1] if start + len(chunk) == len(ids) else [], np.int32)
            found = self.step(tables, [(stream, first + start + i, each) for i, each in enumerate(chunk)], chosen)
            token = int(found[0]) if len(found) else token
        return token
