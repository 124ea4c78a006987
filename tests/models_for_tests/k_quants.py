"""Quantises float32 rows to Q4_K, Q5_K and Q6_K, which the `gguf` package can only read.

A plain rounding to the nearest level, good enough for test models; the layout of a block follows the format's published
definition and is checked by reading it back with the `gguf` package.
"""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

BLOCK = 256
SUB_BLOCKS = 8


def quantize_k(values: F32, kind: GGMLQuantizationType) -> U8:
    """Rows of a multiple of 256 values as rows of bytes."""
    rows = values.shape[0]
    blocks = values.reshape(-1, BLOCK)
    match kind:
        case GGMLQuantizationType.Q4_K:
            packed = _with_minimums(blocks, 15)
        case GGMLQuantizationType.Q5_K:
            packed = _with_minimums(blocks, 31)
        case GGMLQuantizationType.Q6_K:
            packed = _q6(blocks)
        case _:
            raise ValueError(f"{kind.name} is not one of Q4_K, Q5_K, Q6_K")
    return packed.reshape(rows, -1)


def _with_minimums(blocks: F32, levels: int) -> U8:
    """w = d * scale * q - dmin * minimum, per sub-block of 32; scale and minimum have 6 bits."""
    parts = blocks.reshape(-1, SUB_BLOCKS, 32)
    low = np.minimum(parts.min(axis=2), 0)
    step = (parts.max(axis=2) - low) / levels
    d = _half(step.max(axis=1, keepdims=True) / 63)
    dmin = _half(-low.min(axis=1, keepdims=True) / 63)
    scale = np.clip(np.rint(_divide(step, d)), 0, 63).astype(np.uint8)
    minimum = np.clip(np.rint(_divide(-low, dmin)), 0, 63).astype(np.uint8)
    shifted: F32 = np.add(parts, (dmin * minimum)[:, :, None], dtype=np.float32)
    q = np.clip(np.rint(_divide(shifted, (d * scale)[:, :, None])), 0, levels).astype(np.uint8)
    heads = np.concatenate([_half_bytes(d), _half_bytes(dmin), _six_bits(scale, minimum)], axis=1)
    pairs = q.reshape(-1, 4, 2, 32)
    low_nibbles = (pairs[:, :, 0] & 15) | ((pairs[:, :, 1] & 15) << 4)
    parts_of_block = [heads]
    if levels == 31:
        bits = (q >> 4) * (1 << np.arange(SUB_BLOCKS, dtype=np.uint8))[None, :, None].astype(np.uint8)
        parts_of_block.append(bits.sum(axis=1, dtype=np.uint8))
    parts_of_block.append(low_nibbles.reshape(len(q), -1).astype(np.uint8))
    return np.concatenate(parts_of_block, axis=1)


def _q6(blocks: F32) -> U8:
    """w = d * scale * (q - 32), per sub-block of 16; scale has 8 bits with sign."""
    parts = blocks.reshape(-1, 16, 16)
    step = np.abs(parts).max(axis=2) / 31
    d = _half(step.max(axis=1, keepdims=True) / 127)
    scale = np.clip(np.rint(_divide(step, d)), 0, 127).astype(np.int8)
    q = np.clip(np.rint(_divide(parts, (d * scale)[:, :, None])), -32, 31).astype(np.int8) + 32
    a, b, c, e = (q.astype(np.uint8).reshape(-1, 2, 4, 32)[:, :, i] for i in range(4))
    low = np.stack([(a & 15) | ((c & 15) << 4), (b & 15) | ((e & 15) << 4)], axis=2)
    high = (a >> 4) | ((b >> 4) << 2) | ((c >> 4) << 4) | ((e >> 4) << 6)
    fields = (low, high, scale.view(np.uint8))
    return np.concatenate([*(field.reshape(len(q), -1) for field in fields), _half_bytes(d)], axis=1).astype(np.uint8)


def _six_bits(scale: U8, minimum: U8) -> U8:
    first, second = slice(0, 4), slice(4, 8)
    return np.concatenate(
        [
            scale[:, first] | ((scale[:, second] >> 4) << 6),
            minimum[:, first] | ((minimum[:, second] >> 4) << 6),
            (scale[:, second] & 15) | ((minimum[:, second] & 15) << 4),
        ],
        axis=1,
    ).astype(np.uint8)


def _half(values: F32) -> F32:
    return values.astype(np.float16).astype(np.float32)


def _half_bytes(values: F32) -> U8:
    return np.ascontiguousarray(values.astype(np.float16)).view(np.uint8)


def _divide(values: F32, by: F32) -> F32:
    return np.divide(values, by, out=np.zeros_like(values), where=by != 0)
