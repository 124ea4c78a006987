"""The forward pass over one whole sequence: token ids in, last hidden states and logits out, all float32 numpy.

Written as the models' definitions read, one layer after another; no cache, no batch, no tricks but blocks of queries so
that long sequences fit into memory.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tests.reference.architecture import Architecture, read_architecture
from tests.reference.rounding import Rounding, exact
from tests.reference.weights import F32, ReferenceFile

QUERY_BLOCK = 256


class Decoder:
    """A model of one file.

    rounding: applied to all weights and to every stored intermediate; `exact` for the reference itself.
    """

    def __init__(self, file: ReferenceFile, rounding: Rounding = exact) -> None:
        self.file = file
        self.architecture: Architecture = read_architecture(file.metadata)
        self._round = rounding

    @property
    def vocab(self) -> int:
        return self.file.entries["token_embd.weight"].shape[0]

    def hidden(self, tokens: NDArray[np.int64]) -> F32:
        """States after the last norm, [tokens, d_model], of a sequence that starts at position 0."""
        r = self._round
        x = r(self.file.rows("token_embd.weight", tokens))
        if self.architecture.gemma:
            x = r(x * r(np.sqrt(np.float32(self.architecture.d_model))))
        for layer in range(self.architecture.layers):
            x = self._layer(layer, x)
        return self._norm(x, "output_norm.weight")

    def logits(self, hidden: F32) -> F32:
        """[rows, vocab] for states from `hidden`."""
        return self._round(hidden @ self._head.T)

    @cached_property
    def _head(self) -> F32:
        return self._weight("output.weight" if "output.weight" in self.file else "token_embd.weight")

    def _weight(self, name: str) -> F32:
        return self._round(self.file.weight(name))

    def _layer(self, layer: int, x: F32) -> F32:
        r, name = self._round, f"blk.{layer}"
        attended = self._attention(layer, self._norm(x, f"{name}.attn_norm.weight"))
        if self.architecture.gemma:
            attended = self._norm(attended, f"{name}.post_attention_norm.weight")
        x = r(x + attended)
        fed = self._feed_forward(name, self._norm(x, f"{name}.ffn_norm.weight"))
        if self.architecture.gemma:
            fed = self._norm(fed, f"{name}.post_ffw_norm.weight")
        return r(x + fed)

    def _norm(self, x: F32, name: str) -> F32:
        mean_square = np.mean(np.square(x), axis=-1, keepdims=True, dtype=np.float32)
        normed = np.divide(x, np.sqrt(mean_square + np.float32(self.architecture.eps)), dtype=np.float32)
        if self.architecture.gemma:  # Gemma multiplies before it rounds; its file holds 1 + weight
            return self._round(normed * self.file.weight(name))
        return self._round(self._round(normed) * self._weight(name))

    def _linear(self, x: F32, name: str) -> F32:
        y = x @ self._weight(f"{name}.weight").T
        if f"{name}.bias" in self.file:
            y += self._weight(f"{name}.bias")
        return self._round(y)

    def _feed_forward(self, name: str, x: F32) -> F32:
        r = self._round
        gate, up = self._linear(x, f"{name}.ffn_gate"), self._linear(x, f"{name}.ffn_up")
        activated = _gelu_tanh(gate) if self.architecture.gemma else _silu(gate)
        return self._linear(r(r(activated) * up), f"{name}.ffn_down")

    def _attention(self, layer: int, x: F32) -> F32:
        a, name, count = self.architecture, f"blk.{layer}", len(x)
        q = self._linear(x, f"{name}.attn_q").reshape(count, a.heads, a.head_dim)
        k = self._linear(x, f"{name}.attn_k").reshape(count, a.kv_heads, a.head_dim)
        v = self._linear(x, f"{name}.attn_v").reshape(count, a.kv_heads, a.head_dim)
        if f"{name}.attn_q_norm.weight" in self.file:
            q = self._norm(q, f"{name}.attn_q_norm.weight")
            k = self._norm(k, f"{name}.attn_k_norm.weight")
        cos, sin = self._rotations(layer, count)
        q, k = self._rotate(q, cos, sin), self._rotate(k, cos, sin)
        window = a.window if a.is_local(layer) else count
        out = np.empty((count, a.heads, a.head_dim), np.float32)
        group = a.heads // a.kv_heads
        for begin in range(0, count, QUERY_BLOCK):
            end = min(begin + QUERY_BLOCK, count)
            first = max(0, begin - window + 1)
            distance = np.arange(begin, end)[:, None] - np.arange(first, end)[None, :]
            hidden = (distance < 0) | (distance >= window)
            for head in range(a.heads):
                scores = (q[begin:end, head] @ k[first:end, head // group].T) * np.float32(a.attention_scale)
                scores[hidden] = -np.inf
                weights: F32 = np.exp(scores - scores.max(axis=-1, keepdims=True))
                total = weights.sum(axis=-1, keepdims=True)
                out[begin:end, head] = (self._round(weights) @ v[first:end, head // group]) / total
        return self._linear(self._round(out).reshape(count, -1), f"{name}.attn_output")

    def _rotations(self, layer: int, count: int) -> tuple[F32, F32]:
        """Cosines and sines [positions, 1, head_dim / 2]; angles in float64, so that far positions stay exact."""
        base, divisor = self.architecture.rope(layer)
        half = self.architecture.head_dim // 2
        frequencies = np.float64(base) ** (-np.arange(half, dtype=np.float64) / half)
        if "rope_freqs.weight" in self.file:
            frequencies = frequencies / self.file.weight("rope_freqs.weight").astype(np.float64)
        angles = (np.arange(count, dtype=np.float64) / divisor)[:, None, None] * frequencies
        return self._round(np.cos(angles).astype(np.float32)), self._round(np.sin(angles).astype(np.float32))

    def _rotate(self, x: F32, cos: F32, sin: F32) -> F32:
        r, out = self._round, np.empty_like(x)
        half = x.shape[-1] // 2
        if self.architecture.interleaved:
            first, second = slice(0, None, 2), slice(1, None, 2)
        else:
            first, second = slice(0, half), slice(half, None)
        a, b = x[..., first], x[..., second]
        out[..., first] = r(r(a * cos) - r(b * sin))
        out[..., second] = r(r(b * cos) + r(a * sin))
        return out


def _silu(x: F32) -> F32:
    with np.errstate(over="ignore"):  # exp(-x) of a very negative x is infinite, and the quotient 0
        return x / (np.float32(1) + np.exp(-x))


def _gelu_tanh(x: F32) -> F32:
    inner = np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))
