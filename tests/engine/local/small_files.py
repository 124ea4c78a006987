"""Tiny GGUF files for tests, written by the `gguf` package, so that our reader meets another's writing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

LAYERS, MODEL, FF, HEADS, KV_HEADS, HEAD, TOKENS = 2, 64, 128, 4, 2, 32, 320
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)


def tensor_sizes(arch: str) -> dict[str, tuple[int, ...]]:
    """Every tensor of a tiny model, with numpy dimensions (outputs first)."""
    query, key = HEADS * HEAD, KV_HEADS * HEAD
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (MODEL,),
        "attn_q.weight": (query, MODEL),
        "attn_k.weight": (key, MODEL),
        "attn_v.weight": (key, MODEL),
        "attn_output.weight": (MODEL, query),
        "ffn_norm.weight": (MODEL,),
        "ffn_gate.weight": (FF, MODEL),
        "ffn_up.weight": (FF, MODEL),
        "ffn_down.weight": (MODEL, FF),
    }
    if arch == "qwen2":
        layer |= {"attn_q.bias": (query,), "attn_k.bias": (key,), "attn_v.bias": (key,)}
    if arch in ("qwen3", "gemma3"):
        layer |= {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
    if arch == "gemma3":
        layer |= {"post_attention_norm.weight": (MODEL,), "post_ffw_norm.weight": (MODEL,)}
    sizes: dict[str, tuple[int, ...]] = {"token_embd.weight": (TOKENS, MODEL), "output_norm.weight": (MODEL,)}
    for i in range(LAYERS):
        sizes |= {f"blk.{i}.{name}": size for name, size in layer.items()}
    return sizes


def byte_letters() -> list[str]:
    """The letter that byte-level BPE writes for each byte: itself when printable, else one beyond U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + hidden.index(byte)) for byte in range(256)]


def write_model(
    path: Path,
    arch: str = "llama",
    *,
    numbers: Mapping[str, int | float | str | bool | list[int]] = {},
    without: tuple[str, ...] = (),
    extra: Mapping[str, tuple[int, ...]] = {},
    types: Mapping[str, GGMLQuantizationType] = {},
) -> Path:
    """A sound tiny model with a byte-level vocabulary, except for what the arguments spoil: `numbers` overrides
    metadata (keys without the architecture's prefix), `without` drops tensors, `extra` adds or resizes them."""
    writer = GGUFWriter(path, arch)
    settings: dict[str, int | float | str | bool | list[int]] = {
        "block_count": LAYERS,
        "context_length": 512,
        "embedding_length": MODEL,
        "feed_forward_length": FF,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-5,
    } | dict(numbers)
    for key, value in settings.items():
        _add(writer, f"{arch}.{key}", value)
    add_byte_vocabulary(writer)
    writer.add_chat_template(TEMPLATE)
    sizes = tensor_sizes(arch) | dict(extra)
    rng = np.random.default_rng(7)
    for name, size in sizes.items():
        if name in without:
            continue
        weights: NDArray[np.float32] = rng.normal(0, 0.05, size).astype(np.float32)
        wanted = types.get(name, GGMLQuantizationType.Q8_0 if len(size) == 2 else GGMLQuantizationType.F32)
        plain = wanted is GGMLQuantizationType.F64
        writer.add_tensor(name, weights.astype(np.float64) if plain else quantize(weights, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_byte_vocabulary(writer: GGUFWriter) -> None:
    """A byte-level BPE vocabulary: three special tokens, 256 bytes, a few merges, unused ones up to TOKENS."""
    letters = byte_letters()
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("o", "r")]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, *(a + b for a, b in merges)]
    types = [3] * 3 + [1] * (len(tokens) - 3)
    types += [5] * (TOKENS - len(tokens))
    tokens += [f"<unused{i}>" for i in range(TOKENS - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def _add(writer: GGUFWriter, key: str, value: int | float | str | bool | list[int]) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)
