"""Small models with random weights, as GGUF files: every architecture and every tensor type that runs.

They are large enough for blocks of 256 weights and for several attention windows, and small enough to be made and
run in a moment. Their words mean nothing: tests hand in token ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

from tests.models_for_tests.k_quants import quantize_k

F32 = NDArray[np.float32]

TYPES: dict[str, GGMLQuantizationType] = {
    name: GGMLQuantizationType[name]
    for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
}
"""Every tensor type that runs."""

K_TYPES = ("Q4_K", "Q5_K", "Q6_K")


@dataclass(frozen=True, slots=True)
class Synthetic:
    """What a synthetic model is like.

    Attributes:
        architecture: llama, qwen2, qwen3 or gemma3.
        kind: type of all matrices but the embedding and the head.
        embedding: type of the embedding and the head.
        untied: whether there is a head of its own.
        rope_factors: whether a `rope_freqs` tensor divides the rotary frequencies.
        rope_divisor: linear scaling of positions; 1 for none.
        window: sliding window of gemma3's local layers.
    """

    architecture: str = "llama"
    kind: str = "F32"
    embedding: str = "F32"
    untied: bool = False
    rope_factors: bool = False
    rope_divisor: float = 1.0
    window: int = 48
    layers: int = 2
    d_model: int = 256
    d_ff: int = 512
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    vocab: int = 512
    context: int = 2048
    seed: int = 1


VARIANTS: dict[str, Synthetic] = {
    "llama": Synthetic(),
    "llama-factors-untied": Synthetic(untied=True, rope_factors=True, seed=2),
    "llama-scaled": Synthetic(rope_divisor=4.0, kv_heads=1, seed=3),
    "llama-odd-sizes": Synthetic(d_model=160, d_ff=416, heads=5, kv_heads=5, head_dim=32, vocab=333, seed=4),
    "qwen2": Synthetic("qwen2", seed=5),
    "qwen3": Synthetic("qwen3", head_dim=128, heads=4, kv_heads=1, seed=6),
    "gemma3": Synthetic("gemma3", layers=7, kv_heads=1, head_dim=128, seed=7),
    "gemma3-scaled": Synthetic("gemma3", layers=6, rope_divisor=8.0, head_dim=256, kv_heads=1, window=33, seed=8),
}
"""One model per way in which the family differs, in float32."""


def write_synthetic(path: Path, model: Synthetic) -> Path:
    """Write the model's file."""
    writer = GGUFWriter(path, model.architecture)
    _write_numbers(writer, model)
    rng = np.random.default_rng(model.seed)
    for name, shape in _tensors(model).items():
        values = _values(rng, name, shape)
        if len(shape) == 1:
            writer.add_tensor(name, values)
            continue
        kind = model.embedding if name in ("token_embd.weight", "output.weight") else model.kind
        data = quantize_k(values, TYPES[kind]) if kind in K_TYPES else quantize(values, TYPES[kind])
        writer.add_tensor(name, data, raw_dtype=TYPES[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_numbers(writer: GGUFWriter, model: Synthetic) -> None:
    writer.add_block_count(model.layers)
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.d_model)
    writer.add_feed_forward_length(model.d_ff)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1_000_000.0 if model.architecture == "gemma3" else 50_000.0)
    if model.rope_divisor != 1:
        writer.add_string(f"{model.architecture}.rope.scaling.type", "linear")
        writer.add_float32(f"{model.architecture}.rope.scaling.factor", model.rope_divisor)
    if model.architecture == "gemma3":
        writer.add_sliding_window(model.window)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([f"<{i}>" for i in range(model.vocab)])
    writer.add_token_types([1] * model.vocab)
    writer.add_token_merges(["< 1"])  # of no use, but readers expect some


def _tensors(model: Synthetic) -> dict[str, tuple[int, ...]]:
    """Names and shapes, outputs first."""
    width, query, key = model.d_model, model.heads * model.head_dim, model.kv_heads * model.head_dim
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (model.vocab, width), "output_norm.weight": (width,)}
    if model.untied:
        found["output.weight"] = (model.vocab, width)
    if model.rope_factors:
        found["rope_freqs.weight"] = (model.head_dim // 2,)
    for layer in range(model.layers):
        name = f"blk.{layer}"
        found |= {
            f"{name}.attn_norm.weight": (width,),
            f"{name}.attn_q.weight": (query, width),
            f"{name}.attn_k.weight": (key, width),
            f"{name}.attn_v.weight": (key, width),
            f"{name}.attn_output.weight": (width, query),
            f"{name}.ffn_norm.weight": (width,),
            f"{name}.ffn_gate.weight": (model.d_ff, width),
            f"{name}.ffn_up.weight": (model.d_ff, width),
            f"{name}.ffn_down.weight": (width, model.d_ff),
        }
        if model.architecture == "qwen2":
            found |= {f"{name}.attn_{part}.bias": (size,) for part, size in (("q", query), ("k", key), ("v", key))}
        if model.architecture in ("qwen3", "gemma3"):
            found |= {f"{name}.attn_{part}_norm.weight": (model.head_dim,) for part in ("q", "k")}
        if model.architecture == "gemma3":
            found |= {f"{name}.{part}.weight": (width,) for part in ("post_attention_norm", "post_ffw_norm")}
    return found


def _values(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> F32:
    """Random values of the size that trained models have, so that attention is neither flat nor a spike."""
    if name == "rope_freqs.weight":  # as in llama 3: low frequencies are divided, high ones left alone
        return np.geomspace(1, 8, shape[0]).astype(np.float32)
    if name.endswith("norm.weight"):
        return rng.normal(1.0, 0.2, shape).astype(np.float32)
    if name.endswith(".bias"):
        return rng.normal(0.0, 0.5, shape).astype(np.float32)
    spread = 0.05 if name == "token_embd.weight" else 1.5 / np.sqrt(shape[1])
    return rng.normal(0.0, spread, shape).astype(np.float32)
