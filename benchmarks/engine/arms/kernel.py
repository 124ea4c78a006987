"""Our kernel alone as an arm: steps through `gearshift._kernel`, greedy choices, nothing above it.

The path is chosen by GEARSHIFT_ISA in the worker's environment. Streams keep cache blocks of their own; nothing is
shared or reused, so every prompt is computed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.arms.lines import memory, serve
from benchmarks.engine.arms.steps import Stepper, step_read_bytes
from benchmarks.engine.prompts import prompt_ids
from gearshift import _kernel
from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.shape import shape_of
from gearshift.engine.local.weights import load_weights

MAX_STREAMS = 32
MANY_TOKENS = 512
SINGLE_TOKENS = 4096
LAST_PROMPT_ID = prompt_ids(1, 999)[0]


class Place:
    """Blocks of some streams, and how many of these hold a prompt of which length."""

    def __init__(self, first_block: int, streams: int, tokens: int) -> None:
        each = tokens // _kernel.BLOCK_TOKENS
        self.end = first_block + streams * each
        self.tables = np.arange(first_block, self.end, dtype=np.int32).reshape(streams, each)
        self.prepared: tuple[int, int] = (0, 0)


class Loaded:
    """A model with a place for a single long stream and one for many."""

    def __init__(self, path: str, threads: int) -> None:
        with Gguf.open(path) as gguf:
            self.shape = shape_of(gguf)
            self.weights = load_weights(gguf)
        isa = os.environ.get("GEARSHIFT_ISA", "")
        self.model = _kernel.Model(self.weights.mapping, self.shape.config(), self.weights.tensors, isa)
        self.many = Place(0, MAX_STREAMS, MANY_TOKENS)
        self.single = Place(self.many.end, 1, SINGLE_TOKENS)
        self.cache = _kernel.Cache(self.model, self.single.end)
        self.stepper = Stepper(self.model, self.cache, _kernel.Threads(threads), self.shape.vocab)

    def prepare(self, streams: int, context: int) -> NDArray[np.int32]:
        """Bring the first streams to `context` tokens, once; their tables. Later positions are overwritten."""
        place = self.single if streams == 1 else self.many
        done = place.prepared[0] if place.prepared[1] == context else 0
        for stream in range(done, streams):
            self.stepper.prefill(place.tables, stream, prompt_ids(context, stream))
        place.prepared = (max(done, streams), context)
        return place.tables


models: dict[str, Loaded] = {}


def load(name: str, path: str, threads: int) -> dict[str, Any]:
    """Load a model file under a name; packs its weights on the first run."""
    started = time.perf_counter()
    models[name] = loaded = Loaded(path, threads)
    return {
        "seconds": time.perf_counter() - started,
        "isa": loaded.model.isa,
        "weight_bytes": step_read_bytes(path),
    }


def paths() -> dict[str, Any]:
    """The paths that this machine grants, best first."""
    return {"granted": _kernel.isa_paths()}


def decode(model: str, streams: int, context: int, new: int, warmup: int) -> dict[str, Any]:
    """Decode `new` tokens of each stream after `context` prompt tokens; only the decoding is timed."""
    loaded = models[model]
    tables = loaded.prepare(streams, context)
    chosen = np.arange(streams, dtype=np.int32)
    tokens: Sequence[int] = [LAST_PROMPT_ID] * streams
    started = 0.0
    for step in range(warmup + new):
        if step == warmup:
            started = time.perf_counter()
        tokens = loaded.stepper.step(tables, [(s, context + step, tokens[s]) for s in range(streams)], chosen).tolist()
    return {"seconds": time.perf_counter() - started, "tokens": streams * new}


def rows(model: str, counts: list[int], context: int, repeats: int, warmup: int) -> dict[str, Any]:
    """Steps of so many tokens of one stream, a greedy choice for each row; seconds by count."""
    loaded = models[model]
    tables = loaded.prepare(1, context)
    seconds: dict[int, list[float]] = {}
    for count in counts:
        ids = prompt_ids(count, 998)
        batch = [(0, context + i, token) for i, token in enumerate(ids)]
        chosen = np.arange(count, dtype=np.int32)
        for repeat in range(warmup + repeats):
            started = time.perf_counter()
            loaded.stepper.step(tables, batch, chosen)
            if repeat >= warmup:
                seconds.setdefault(count, []).append(time.perf_counter() - started)
    return {"step_seconds": seconds}


def prefill(model: str, tokens: int, key: int) -> dict[str, Any]:
    """A prompt of `tokens` into an empty stream, up to its first new token."""
    loaded = models[model]
    loaded.single.prepared = (0, 0)
    ids = prompt_ids(tokens, key)
    started = time.perf_counter()
    loaded.stepper.prefill(loaded.single.tables, 0, ids)
    return {"seconds": time.perf_counter() - started, "tokens": tokens}


if __name__ == "__main__":
    serve({"paths": paths, "load": load, "decode": decode, "rows": rows, "prefill": prefill, "memory": memory})
