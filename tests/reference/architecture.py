"""The shape of a decoder as the reference reads it from GGUF metadata, on its own: not `ModelShape`.

Defaults are those that the file formats' authors use for keys that a file leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

GEMMA3_GLOBAL_EVERY = 6
"""Five local layers, then one global."""
GEMMA3_LOCAL_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the forward pass needs to know beside the weights."""

    name: str
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    eps: float
    rope_base: float
    rope_divisor: float
    window: int

    @property
    def interleaved(self) -> bool:
        """GGUF `llama` files have q and k permuted so that a rotated pair is (2i, 2i + 1)."""
        return self.name == "llama"

    @property
    def gemma(self) -> bool:
        return self.name == "gemma3"

    @property
    def attention_scale(self) -> float:
        # Gemma 3 27B alone scales by d_model / heads; it is the one with 62 layers.
        if self.gemma and self.layers == 62:
            return 1 / sqrt(self.d_model / self.heads)
        return 1 / sqrt(self.head_dim)

    def is_local(self, layer: int) -> bool:
        """Whether the layer only looks back `window` positions."""
        return self.gemma and self.window > 0 and (layer + 1) % GEMMA3_GLOBAL_EVERY != 0

    def rope(self, layer: int) -> tuple[float, float]:
        """Base of the rotary embedding and the number that positions are divided by."""
        if self.is_local(layer):
            return GEMMA3_LOCAL_BASE, 1.0
        return self.rope_base, self.rope_divisor


def read_architecture(metadata: dict[str, Any]) -> Architecture:
    """From the metadata of a file of architecture llama, qwen2, qwen3 or gemma3."""
    name = str(metadata["general.architecture"])
    if name not in ("llama", "qwen2", "qwen3", "gemma3"):
        raise ValueError(f"the reference knows llama, qwen2, qwen3 and gemma3, not {name!r}")

    def key(suffix: str, default: float | None = None) -> Any:
        return metadata[f"{name}.{suffix}"] if default is None else metadata.get(f"{name}.{suffix}", default)

    heads, d_model = int(key("attention.head_count")), int(key("embedding_length"))
    scaled = metadata.get(f"{name}.rope.scaling.type") == "linear"
    return Architecture(
        name=name,
        layers=int(key("block_count")),
        d_model=d_model,
        heads=heads,
        kv_heads=int(key("attention.head_count_kv", heads)),
        head_dim=int(key("attention.key_length", d_model // heads)),
        context=int(key("context_length")),
        eps=float(key("attention.layer_norm_rms_epsilon")),
        rope_base=float(key("rope.freq_base", 1_000_000.0 if name == "gemma3" else 10_000.0)),
        rope_divisor=float(key("rope.scaling.factor")) if scaled else 1.0,
        window=int(key("attention.sliding_window", 0)) if name == "gemma3" else 0,
    )
