"""A random model of a few thousand weights, packed in memory, and steps with plain arguments.

Every variant of a shape can be asked for. What the numbers should be is the business of the reference
implementation; tests here compare the kernel with itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gearshift import _kernel
from gearshift.engine.local.shape import ModelShape

F32 = 0
SHAPE = ModelShape(
    layers=2,
    d_model=64,
    d_ff=96,
    heads=4,
    kv_heads=2,
    head_dim=16,
    vocab=100,
    context=2048,
    rms_eps=1e-5,
    rope_base=10000.0,
    rope_scale=1.0,
    rope_interleaved=True,
    sliding_window=0,
    global_every=1,
    rope_base_local=10000.0,
    attention_scale=0.25,
    qkv_bias=False,
    qk_norm=False,
    post_norms=False,
    gelu=False,
    embedding_scale=1.0,
    tied_head=True,
    rope_factors=False,
)
GEMMA_LIKE = replace(
    SHAPE,
    rope_interleaved=False,
    sliding_window=40,
    global_every=2,
    rope_base=1e6,
    qk_norm=True,
    post_norms=True,
    gelu=True,
    embedding_scale=8.0,
    head_dim=80,
    heads=3,
    kv_heads=1,
)
QWEN2_LIKE = replace(SHAPE, rope_interleaved=False, qkv_bias=True, tied_head=False, rope_factors=True, heads=14)

Place = tuple[int, int, int, int, int]


@dataclass
class TinyModel:
    """Packed weights and where each tensor lies in them."""

    shape: ModelShape
    weights: NDArray[np.uint8]
    places: dict[str, Place]

    def load(self, isa: str = "") -> _kernel.Model:
        return _kernel.Model(self.weights, self.shape.config(), self.places, isa)


def _matrices(shape: ModelShape) -> dict[str, tuple[int, int]]:
    q_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    matrices = {"token_embd": (shape.vocab, shape.d_model)}
    if not shape.tied_head:
        matrices["output"] = (shape.vocab, shape.d_model)
    for layer in range(shape.layers):
        matrices |= {
            f"blk.{layer}.attn_q": (q_width, shape.d_model),
            f"blk.{layer}.attn_k": (kv_width, shape.d_model),
            f"blk.{layer}.attn_v": (kv_width, shape.d_model),
            f"blk.{layer}.attn_output": (shape.d_model, q_width),
            f"blk.{layer}.ffn_gate": (shape.d_ff, shape.d_model),
            f"blk.{layer}.ffn_up": (shape.d_ff, shape.d_model),
            f"blk.{layer}.ffn_down": (shape.d_model, shape.d_ff),
        }
    return matrices


def _vectors(shape: ModelShape) -> dict[str, int]:
    q_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    vectors = {"output_norm.weight": shape.d_model}
    if shape.rope_factors:
        vectors["rope_freqs.weight"] = shape.head_dim // 2
    for layer in range(shape.layers):
        prefix = f"blk.{layer}."
        vectors |= {prefix + "attn_norm.weight": shape.d_model, prefix + "ffn_norm.weight": shape.d_model}
        if shape.qkv_bias:
            vectors |= {
                prefix + "attn_q.bias": q_width,
                prefix + "attn_k.bias": kv_width,
                prefix + "attn_v.bias": kv_width,
            }
        if shape.qk_norm:
            vectors |= {
                prefix + "attn_q_norm.weight": shape.head_dim,
                prefix + "attn_k_norm.weight": shape.head_dim,
            }
        if shape.post_norms:
            vectors |= {
                prefix + "post_attention_norm.weight": shape.d_model,
                prefix + "post_ffw_norm.weight": shape.d_model,
            }
    return vectors


def make_tiny_model(shape: ModelShape = SHAPE, seed: int = 1, bits: int = 8) -> TinyModel:
    """Random weights for a shape."""
    rng = np.random.default_rng(seed)
    parts: dict[str, tuple[bytes, int, int, int]] = {}
    for name, (n_out, n_in) in _matrices(shape).items():
        values = (rng.standard_normal((n_out, n_in)) / np.sqrt(n_in)).astype(np.float32)
        packed = _kernel.pack_linear(values.view(np.uint8).reshape(-1), F32, n_out, n_in, bits)
        parts[name + ".weight"] = (packed, n_out, n_in, bits)
    for name, length in _vectors(shape).items():
        values = (1 + 0.2 * rng.standard_normal(length)).astype(np.float32)
        parts[name] = (np.abs(values).tobytes(), 1, length, 32)
    places: dict[str, Place] = {}
    offset = 0
    for name, (data, n_out, n_in, tensor_bits) in parts.items():
        places[name] = (offset, len(data), n_out, n_in, tensor_bits)
        offset += -(-len(data) // 64) * 64
    raw = np.zeros(offset + 64, np.uint8)
    start = -raw.ctypes.data % 64
    weights = raw[start : start + offset]
    for name, (data, *_) in parts.items():
        at = places[name][0]
        weights[at : at + len(data)] = np.frombuffer(data, np.uint8)
    return TinyModel(shape, weights, places)


def _ints(values: ArrayLike) -> NDArray[np.int32]:
    return np.ascontiguousarray(values, dtype=np.int32)


def arguments(
    tokens: ArrayLike,
    positions: ArrayLike,
    sequences: ArrayLike,
    tables: ArrayLike,
    chosen: ArrayLike,
) -> dict[str, NDArray[np.generic]]:
    """The arrays of a greedy step without penalties, biases and masks."""
    choices = _ints(chosen).shape[0]

    def each(value: float, dtype: type[np.generic] = np.float32) -> NDArray[np.generic]:
        return np.full(choices, value).astype(dtype)

    return {
        "tokens": _ints(tokens),
        "positions": _ints(positions),
        "sequences": _ints(sequences),
        "tables": _ints(tables),
        "chosen": _ints(chosen),
        "temperature": each(0),
        "top_k": each(0, np.int32),
        "top_p": each(1),
        "min_p": each(0),
        "seed": each(7, np.uint64),
        "choice": each(0, np.int32),
        "presence_penalty": each(0),
        "frequency_penalty": each(0),
        "repetition_penalty": each(1),
        "count_offsets": np.zeros(choices + 1, np.int32),
        "count_ids": _ints([]),
        "count_values": _ints([]),
        "bias_offsets": np.zeros(choices + 1, np.int32),
        "bias_ids": _ints([]),
        "bias_values": np.zeros(0, np.float32),
        "mask_index": each(-1, np.int32),
        "masks": np.zeros((0, 0), np.uint32),
    }


class Runner:
    """A model with a team of threads and a cache of its own."""

    def __init__(self, tiny: TinyModel, isa: str = "", threads: int = 2, blocks: int = 64) -> None:
        self.tiny = tiny
        self.model = tiny.load(isa)
        self.threads = _kernel.Threads(threads)
        self.cache = _kernel.Cache(self.model, blocks)

    def step(self, **arrays: object) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Token ids and raw logits of the chosen rows."""
        choices = len(arrays["chosen"])  # type: ignore[arg-type]
        logits = np.zeros((choices, self.tiny.shape.vocab), np.float32)
        ids, *_ = self.model.step(self.cache, self.threads, logits=logits, **arrays)  # type: ignore[arg-type]
        return ids, logits
