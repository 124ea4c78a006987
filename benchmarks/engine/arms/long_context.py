"""Our kernel over long contexts, as a worker: one stream that grows, real weights or made-up ones.

The made-up model is global in every layer. Its cache is filled by a twin whose layers look back on 512 positions
only, since computing 131,072 positions in earnest takes hours and changes no time and no byte of what is measured
here: a step at a given position, and a chunk of a prompt. The time of a whole prompt is then added up from chunks.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.arms.lines import memory, serve
from benchmarks.engine.arms.steps import PREFILL_CHUNK, Stepper
from benchmarks.engine.prompts import prompt_ids
from gearshift import _kernel
from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.shape import ModelShape, shape_of, tensor_dims
from gearshift.engine.local.weights import PLAIN_BITS, Section, load_weights

STEPS = 5
"""Steps of one row that are timed at each length."""
Q4_0 = 2
Q8_0 = 8
LINE = 64
TWIN_WINDOW = 512
SYNTHETIC = ModelShape(
    layers=30,
    d_model=576,
    d_ff=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49152,
    context=131_072,
    rms_eps=1e-5,
    rope_base=1e6,
    rope_scale=1.0,
    rope_interleaved=True,
    sliding_window=0,
    global_every=1,
    rope_base_local=1e4,
    attention_scale=0.125,
    qkv_bias=False,
    qk_norm=False,
    post_norms=False,
    gelu=False,
    embedding_scale=1.0,
    tied_head=True,
    rope_factors=False,
)
"""SmolLM2-135M's sizes with a window of 131,072 tokens."""


class Growing:
    """One stream over a cache of its own, and how far it has come.

    Attributes:
        real: runs what is timed.
        filler: runs what only has to be in the cache; the same stepper where everything is computed in earnest.
        spent_s: seconds that a prompt of this length takes.
    """

    def __init__(self, real: Stepper, filler: Stepper, tokens: int) -> None:
        self.real = real
        self.filler = filler
        self.tables: NDArray[np.int32] = np.arange(blocks_for(tokens), dtype=np.int32)[np.newaxis]
        self.at = 0
        self.spent_s = 0.0
        self.last_chunk_s = 0.0

    def run(self, stepper: Stepper, tokens: int) -> float:
        """Compute the next `tokens` positions; the seconds they took."""
        started = time.perf_counter()
        stepper.prefill(self.tables, 0, prompt_ids(tokens, self.at), self.at)
        self.at += tokens
        return time.perf_counter() - started

    def grow(self, target: int) -> None:
        """Come to `target` tokens of context and account for the time a prompt of that length takes."""
        if self.filler is self.real:
            self.spent_s += self.run(self.real, target - self.at)
            return
        before = self.at
        if target - self.at > PREFILL_CHUNK:
            self.run(self.filler, target - self.at - PREFILL_CHUNK)
        chunk_tokens = target - self.at
        chunk_s = self.run(self.real, chunk_tokens) * PREFILL_CHUNK / chunk_tokens
        # A chunk's time grows in proportion to its position, so the mean of two ends is exact between them.
        self.spent_s += (target - before) / PREFILL_CHUNK * ((self.last_chunk_s or chunk_s) + chunk_s) / 2
        self.last_chunk_s = chunk_s


streams: list[Growing] = []


def blocks_for(tokens: int) -> int:
    return -(-tokens // _kernel.BLOCK_TOKENS)


def _about(packed: int, cache: _kernel.Cache, model: _kernel.Model) -> dict[str, Any]:
    return {
        "isa": model.isa,
        "packed_bytes": packed,
        "cache_bytes": cache.bytes,
        "cache_tokens": cache.blocks * _kernel.BLOCK_TOKENS,
        "cache_bytes_per_token": model.cache_bytes_per_token,
    }


def load(path: str, threads: int, tokens: int) -> dict[str, Any]:
    """A real model with a cache of `tokens` tokens."""
    with Gguf.open(path) as gguf:
        shape = shape_of(gguf)
        weights = load_weights(gguf)
    model = _kernel.Model(weights.mapping, shape.config(), weights.tensors, os.environ.get("GEARSHIFT_ISA", ""))
    cache = _kernel.Cache(model, blocks_for(tokens))
    stepper = Stepper(model, cache, _kernel.Threads(threads), shape.vocab)
    streams[:] = [Growing(stepper, stepper, tokens)]
    return _about(int(weights.mapping.nbytes), cache, model)


def load_synthetic(threads: int, tokens: int) -> dict[str, Any]:
    """The made-up model and its twin over one mapping and one cache."""
    mapping, tensors = _made_up_weights(SYNTHETIC)
    isa = os.environ.get("GEARSHIFT_ISA", "")
    model = _kernel.Model(mapping, SYNTHETIC.config(), tensors, isa)
    twin_shape = replace(SYNTHETIC, sliding_window=TWIN_WINDOW, global_every=SYNTHETIC.layers + 1)
    twin = _kernel.Model(mapping, twin_shape.config(), tensors, isa)
    cache = _kernel.Cache(model, blocks_for(tokens))
    team = _kernel.Threads(threads)
    real, filler = (Stepper(each, cache, team, SYNTHETIC.vocab) for each in (model, twin))
    streams[:] = [Growing(real, filler, tokens)]
    return _about(int(mapping.nbytes), cache, model)


def _made_up_weights(shape: ModelShape) -> tuple[NDArray[np.uint8], dict[str, Section]]:
    """Packed random matrices (4 bits, the head 8) and plain vectors of ones, as one mapping."""
    random = np.random.default_rng(1)
    parts: list[bytes] = []
    tensors: dict[str, Section] = {}
    at = 0
    for name, dims in tensor_dims(shape).items():
        if len(dims) == 1:
            part, n_out, n_in, bits = np.ones(dims[0], np.float32).tobytes(), 1, dims[0], PLAIN_BITS
        else:
            n_in, n_out = dims
            bits = 8 if name == "token_embd.weight" else 4
            part = _kernel.pack_linear(
                _made_up_matrix(random, n_out * n_in, bits), Q8_0 if bits == 8 else Q4_0, n_out, n_in, bits
            )
        tensors[name] = (at, len(part), n_out, n_in, bits)
        padded = -(-len(part) // LINE) * LINE
        parts.append(part.ljust(padded, b"\0"))
        at += padded
    # numpy aligns to 16 bytes only; the kernel wants whole cache lines.
    room = np.zeros(at + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    mapping = room[begin : begin + at]
    mapping[:] = np.frombuffer(b"".join(parts), np.uint8)
    return mapping, tensors


def _made_up_matrix(random: np.random.Generator, weights: int, bits: int) -> bytes:
    """GGUF blocks of 32 weights: one half-precision scale, then codes."""
    blocks = random.integers(0, 256, (weights // 32, 2 + (32 if bits == 8 else 16)), np.uint8)
    scale = np.float16(2**-11 if bits == 8 else 2**-7)
    blocks[:, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.tobytes()


def grow_to(tokens: int) -> dict[str, Any]:
    """Bring the stream to `tokens` of context, then time steps of one row at its last position."""
    stream = streams[0]
    stream.grow(tokens)
    chosen = np.zeros(1, np.int32)
    row = [(0, tokens - 1, prompt_ids(1, 999)[0])]
    stream.real.step(stream.tables, row, chosen)
    seconds: list[float] = []
    for _ in range(STEPS):
        started = time.perf_counter()
        stream.real.step(stream.tables, row, chosen)
        seconds.append(time.perf_counter() - started)
    return {
        "context": tokens,
        "first_token_s": stream.spent_s,
        "step_seconds": seconds,
        "blocks": blocks_for(tokens),
        **memory(),
    }


if __name__ == "__main__":
    serve({"load": load, "load_synthetic": load_synthetic, "grow_to": grow_to})
