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
from benchmarks.engine.arms.steps import Stepper
from benchmarks.engine.prompts import prompt_ids
from gearshift import _kernel
from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.shape import shape_of
from gearshift.engine.local.weights import PLAIN_BITS, load_weights

MAX_STREAMS = 32
MANY_TOKENS = 512
SINGLE_TOKENS = 4096
LAST_PROMPT_ID = prompt_ids(1, 999)[0]


class Loaded:
    """A model with a cache: the first blocks belong to the streams in turn, the single stream takes them all."""

    def __init__(self, path: str, threads: int) -> None:
        with Gguf.open(path) as gguf:
            self.shape = shape_of(gguf)
            self.weights = load_weights(gguf)
        isa = os.environ.get("GEARSHIFT_ISA", "")
        self.model = _kernel.Model(self.weights.mapping, self.shape.config(), self.weights.tensors, isa)
        self.cache = _kernel.Cache(self.model, MAX_STREAMS * MANY_TOKENS // _kernel.BLOCK_TOKENS)
        self.stepper = Stepper(self.model, self.cache, _kernel.Threads(threads), self.shape.vocab)
        each = MANY_TOKENS // _kernel.BLOCK_TOKENS
        self.many = np.arange(MAX_STREAMS * each, dtype=np.int32).reshape(MAX_STREAMS, each)
        self.single = np.arange(SINGLE_TOKENS // _kernel.BLOCK_TOKENS, dtype=np.int32)[np.newaxis]
        self.prepared: tuple[int, int] | None = None

    def tables(self, streams: int) -> NDArray[np.int32]:
        return self.single if streams == 1 else self.many

    def prepare(self, streams: int, context: int) -> None:
        """Bring every stream to `context` tokens. Later positions are simply overwritten."""
        if self.prepared == (streams, context):
            return
        for stream in range(streams):
            self.stepper.prefill(self.tables(streams), stream, prompt_ids(context, stream))
        self.prepared = (streams, context)

    def weight_bytes(self) -> int:
        """Bytes of weights that a step must read: all matrices, the embedding only when it is the head as well."""
        return sum(
            size
            for name, (_, size, _, _, bits) in self.weights.tensors.items()
            if bits != PLAIN_BITS and (name != "token_embd.weight" or self.shape.tied_head)
        )


models: dict[str, Loaded] = {}


def load(name: str, path: str, threads: int) -> dict[str, Any]:
    """Load a model file under a name; packs its weights on the first run."""
    started = time.perf_counter()
    models[name] = loaded = Loaded(path, threads)
    return {
        "seconds": time.perf_counter() - started,
        "isa": loaded.model.isa,
        "granted": _kernel.isa_paths(),
        "weight_bytes": loaded.weight_bytes(),
        "packed_bytes": int(loaded.weights.mapping.nbytes),
        "cache_bytes": loaded.cache.bytes,
        "cache_bytes_per_token": loaded.model.cache_bytes_per_token,
        "vocabulary": loaded.shape.vocab,
    }


def paths() -> dict[str, Any]:
    """The paths that this machine grants, best first."""
    return {"granted": _kernel.isa_paths()}


def decode(model: str, streams: int, context: int, new: int, warmup: int) -> dict[str, Any]:
    """Decode `new` tokens of each stream after `context` prompt tokens; only the decoding is timed."""
    loaded = models[model]
    loaded.prepare(streams, context)
    tables = loaded.tables(streams)
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
    loaded.prepare(1, context)
    seconds: dict[int, list[float]] = {}
    for count in counts:
        ids = prompt_ids(count, 998)
        batch = [(0, context + i, token) for i, token in enumerate(ids)]
        chosen = np.arange(count, dtype=np.int32)
        for repeat in range(warmup + repeats):
            started = time.perf_counter()
            loaded.stepper.step(loaded.single, batch, chosen)
            if repeat >= warmup:
                seconds.setdefault(count, []).append(time.perf_counter() - started)
    return {"step_seconds": seconds}


def prefill(model: str, tokens: int, key: int) -> dict[str, Any]:
    """A prompt of `tokens` into an empty stream, up to its first new token."""
    loaded = models[model]
    loaded.prepared = None
    ids = prompt_ids(tokens, key)
    started = time.perf_counter()
    loaded.stepper.prefill(loaded.single, 0, ids)
    return {"seconds": time.perf_counter() - started, "tokens": tokens}


if __name__ == "__main__":
    serve({"paths": paths, "load": load, "decode": decode, "rows": rows, "prefill": prefill, "memory": memory})
