"""llama.cpp as an arm: its C interface through llama-cpp-python's bindings, run with the peer environment's Python.

The low-level interface is used, so that nothing but `llama_decode` and an argmax over its logits is timed. Greedy
choice by numpy's vectorised argmax is faster than llama.cpp's own sampler chain, which favours the peer.
"""

from __future__ import annotations

import ctypes
import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine.arms.lines import memory, serve
from benchmarks.engine.prompts import prompt_ids

lib: Any = importlib.import_module("llama_cpp")

FTYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7}
MAX_STREAMS = 32
MAX_OUTPUTS = 64
SINGLE_TOKENS = 4096
MANY_TOKENS = 512
UBATCH = 512
LAST_PROMPT_ID = prompt_ids(1, 999)[0]


# The callback object must outlive every call into the library, or it crashes.
@lib.llama_log_callback
def _silent(level: int, text: bytes, data: object) -> None:
    pass


class Context:
    """One llama.cpp context: a cache for `streams` streams of `tokens` tokens each, and a batch."""

    def __init__(self, model: Any, threads: int, streams: int, tokens: int) -> None:
        parameters = lib.llama_context_default_params()
        parameters.n_ctx = streams * tokens
        parameters.n_batch = 2048
        parameters.n_ubatch = UBATCH
        parameters.n_seq_max = streams
        parameters.n_outputs_max = MAX_OUTPUTS
        parameters.n_threads = parameters.n_threads_batch = threads
        # Streams keep caches of their own: in a unified one every row would pass over the keys of all streams.
        parameters.kv_unified = False
        parameters.no_perf = True
        self.context = lib.llama_init_from_model(model, parameters)
        if not self.context:
            raise RuntimeError(f"llama.cpp could not make a context of {streams} streams of {tokens} tokens.")
        self.memory = lib.llama_get_memory(self.context)
        self.vocab = int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)))
        self.batch = lib.llama_batch_init(2048, 0, 1)
        self.prepared: tuple[int, int] = (0, 0)

    def run(self, rows: list[tuple[int, int, int]], all_logits: bool) -> None:
        """One `llama_decode` over rows of (sequence, position, token)."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (sequence, position, token) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = all_logits
        if not all_logits:
            batch.logits[len(rows) - 1] = True
        code = lib.llama_decode(self.context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code} for {len(rows)} rows.")

    def greedy(self, row: int) -> int:
        """The likeliest token after a row of the last batch."""
        logits = ctypes.cast(lib.llama_get_logits_ith(self.context, row), ctypes.POINTER(ctypes.c_float))
        return int(np.argmax(np.ctypeslib.as_array(logits, (self.vocab,))))

    def forget(self, sequence: int, from_position: int) -> None:
        lib.llama_memory_seq_rm(self.memory, sequence, from_position, -1)

    def prefill(self, sequence: int, ids: list[int]) -> None:
        for start in range(0, len(ids), UBATCH):
            chunk = ids[start : start + UBATCH]
            self.run([(sequence, start + i, token) for i, token in enumerate(chunk)], all_logits=False)

    def prepare(self, streams: int, context: int) -> None:
        """Bring the first streams to `context` tokens: computed the first time, cut back to them later."""
        done = self.prepared[0] if self.prepared[1] == context else 0
        if done == 0:
            lib.llama_memory_clear(self.memory, False)
        for stream in range(done, streams):
            self.prefill(stream, prompt_ids(context, stream))
        self.prepared = (max(done, streams), context)
        for stream in range(streams):
            self.forget(stream, context)


class Loaded:
    """One model file with a context for a single stream and one for many."""

    def __init__(self, path: str, threads: int) -> None:
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp could not load {path}; is it a complete GGUF file?")
        self.single = Context(self.model, threads, 1, SINGLE_TOKENS)
        self.many = Context(self.model, threads, MAX_STREAMS, MANY_TOKENS)

    def context(self, streams: int) -> Context:
        return self.single if streams == 1 else self.many


models: dict[str, Loaded] = {}


def quantize(source: str, target: str, kind: str, threads: int) -> dict[str, Any]:
    """Requantise a GGUF file into `kind` by llama.cpp's own routine, unless it was done before."""
    lib.llama_log_set(_silent, None)
    if not Path(target).exists():
        parameters = lib.llama_model_quantize_default_params()
        parameters.ftype = FTYPES[kind]
        parameters.nthread = threads
        parameters.allow_requantize = True
        code = lib.llama_model_quantize(source.encode(), f"{target}.part".encode(), ctypes.byref(parameters))
        if code != 0:
            raise RuntimeError(f"llama_model_quantize returned {code} for {source} as {kind}.")
        Path(f"{target}.part").rename(target)
    return {"bytes": Path(target).stat().st_size}


def load(name: str, path: str, threads: int) -> dict[str, Any]:
    """Load a model file under a name; later calls choose it by that name."""
    lib.llama_log_set(_silent, None)
    started = time.perf_counter()
    models[name] = Loaded(path, threads)
    return {
        "seconds": time.perf_counter() - started,
        "version": str(lib.__version__),
        "system": lib.llama_print_system_info().decode(),
        "bytes": Path(path).stat().st_size,
    }


def decode(model: str, streams: int, context: int, new: int, warmup: int) -> dict[str, Any]:
    """Decode `new` tokens of each stream after `context` prompt tokens; only the decoding is timed."""
    loaded = models[model].context(streams)
    loaded.prepare(streams, context)
    tokens = [LAST_PROMPT_ID] * streams
    started = 0.0
    for step in range(warmup + new):
        if step == warmup:
            started = time.perf_counter()
        loaded.run([(s, context + step, tokens[s]) for s in range(streams)], all_logits=True)
        tokens = [loaded.greedy(s) for s in range(streams)]
    return {"seconds": time.perf_counter() - started, "tokens": streams * new}


def rows(model: str, counts: list[int], context: int, repeats: int, warmup: int) -> dict[str, Any]:
    """Steps of so many tokens of one stream, logits and a greedy choice for each row; seconds by count."""
    loaded = models[model].single
    loaded.prepare(1, context)
    seconds: dict[int, list[float]] = {}
    for count in counts:
        ids = prompt_ids(count, 998)
        for repeat in range(warmup + repeats):
            loaded.forget(0, context)
            started = time.perf_counter()
            loaded.run([(0, context + i, token) for i, token in enumerate(ids)], all_logits=True)
            for i in range(count):
                loaded.greedy(i)
            if repeat >= warmup:
                seconds.setdefault(count, []).append(time.perf_counter() - started)
    return {"step_seconds": seconds}


def prefill(model: str, tokens: int, key: int) -> dict[str, Any]:
    """A prompt of `tokens` into an empty stream, up to its first new token."""
    loaded = models[model].single
    loaded.prepared = (0, 0)
    lib.llama_memory_clear(loaded.memory, False)
    ids = prompt_ids(tokens, key)
    started = time.perf_counter()
    loaded.prefill(0, ids)
    loaded.greedy((len(ids) - 1) % UBATCH)
    return {"seconds": time.perf_counter() - started, "tokens": tokens}


if __name__ == "__main__":
    serve({"quantize": quantize, "load": load, "decode": decode, "rows": rows, "prefill": prefill, "memory": memory})
