"""The rule of kernel/choose.h once more, in plain numpy and float64, and a caller of `choose_rows` with defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gearshift import _kernel

IN_PROMPT = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The parameters of one choice."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    choice: int = 0
    position: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    counts: dict[int, int] = field(default_factory=dict[int, int])
    biases: dict[int, float] = field(default_factory=dict[int, float])
    allowed: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Choices:
    ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]

    def bits(self) -> tuple[bytes, bytes, bytes, bytes]:
        return (self.ids.tobytes(), self.logprobs.tobytes(), self.top_ids.tobytes(), self.top_logprobs.tobytes())


def choose(logits: NDArray[np.float32], wishes: list[Wish], *, top_logprobs: int = 0, wide: bool = True) -> Choices:
    """One choice per wish; logits are [wishes, vocab], or [vocab] for all of them."""
    rows = np.ascontiguousarray(np.broadcast_to(logits, (len(wishes), logits.shape[-1])), np.float32)
    vocab = rows.shape[1]
    masks = [pack(w.allowed) for w in wishes if w.allowed is not None]
    numbers = iter(range(len(masks)))
    counts = [item for w in wishes for item in w.counts.items()]
    biases = [item for w in wishes for item in w.biases.items()]
    return Choices(
        *_kernel.choose_rows(
            rows,
            temperature=np.array([w.temperature for w in wishes], np.float32),
            top_k=np.array([w.top_k for w in wishes], np.int32),
            top_p=np.array([w.top_p for w in wishes], np.float32),
            min_p=np.array([w.min_p for w in wishes], np.float32),
            seed=np.array([w.seed for w in wishes], np.uint64),
            choice=np.array([w.choice for w in wishes], np.int32),
            position=np.array([w.position for w in wishes], np.int32),
            presence_penalty=np.array([w.presence_penalty for w in wishes], np.float32),
            frequency_penalty=np.array([w.frequency_penalty for w in wishes], np.float32),
            repetition_penalty=np.array([w.repetition_penalty for w in wishes], np.float32),
            count_offsets=np.cumsum([0, *(len(w.counts) for w in wishes)], dtype=np.int32),
            count_ids=np.array([i for i, _ in counts], np.int32),
            count_values=np.array([n for _, n in counts], np.int32),
            bias_offsets=np.cumsum([0, *(len(w.biases) for w in wishes)], dtype=np.int32),
            bias_ids=np.array([i for i, _ in biases], np.int32),
            bias_values=np.array([b for _, b in biases], np.float32),
            mask_index=np.array([-1 if w.allowed is None else next(numbers) for w in wishes], np.int32),
            masks=np.stack(masks) if masks else np.zeros((0, (vocab + 31) // 32), np.uint32),
            top_logprobs=top_logprobs,
            wide=wide,
        )
    )


def pack(allowed: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Bit id % 32 of word id / 32."""
    padded = np.zeros((allowed.size + 31) // 32 * 32, np.bool_)
    padded[: allowed.size] = allowed
    return np.packbits(padded, bitorder="little").view(np.uint32)


def adjusted(logits: NDArray[np.float32], w: Wish) -> NDArray[np.float64]:
    """Steps 1 to 4: penalties, biases, mask."""
    x = logits.astype(np.float64)
    for i, n in w.counts.items():
        times = n & (IN_PROMPT - 1)
        x[i] = x[i] / w.repetition_penalty if x[i] > 0 else x[i] * w.repetition_penalty
        x[i] -= w.frequency_penalty * times + w.presence_penalty * (times > 0)
    for i, b in w.biases.items():
        x[i] += b
    if w.allowed is not None:
        x[~w.allowed] = -np.inf
    return x


def distribution(logits: NDArray[np.float32], w: Wish) -> NDArray[np.float64]:
    """Step 5: the probability of every token, zero where it is not kept."""
    z = adjusted(logits, w) / float(np.float32(w.temperature))
    z -= z.max()
    order = np.argsort(-z, kind="stable")
    mass = np.exp(z)[order]
    if w.top_k > 0:
        mass[w.top_k :] = 0
    before = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
    if w.top_p < 1:
        mass[1:][before[1:] >= w.top_p * mass.sum()] = 0
    if w.min_p > 0:
        mass[mass < w.min_p] = 0
    p = np.zeros_like(z)
    p[order] = mass / mass.sum()
    return p


def logprobs(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    x = logits.astype(np.float64)
    x -= x.max()
    return x - np.log(np.exp(x).sum())


def noise(vocab: int, w: Wish) -> NDArray[np.float64]:
    """Gumbel noise of every token id: the hash written down a second time, and numpy's logarithms."""
    key = noise_key(w)
    ids = np.arange(vocab, dtype=np.uint32)
    v = mix(ids, key[0], key[1]) * 2.0**-32 + (mix(ids, key[2], key[3]) + 0.5) * 2.0**-64
    return -np.log(-np.log1p(-v))


def mix(x: NDArray[np.uint32], first: int, second: int) -> NDArray[np.uint32]:
    x = x ^ np.uint32(first)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x9E3779B1)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x85EBCA6B)
    x = x ^ np.uint32(second)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def noise_key(w: Wish) -> tuple[int, int, int, int]:
    step, word = 0x9E3779B97F4A7C15, (1 << 64) - 1

    def scramble(x: int) -> int:
        x &= word
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & word
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & word
        return x ^ (x >> 31)

    x = scramble(w.seed + step)
    x = scramble((x ^ w.choice) + step)
    x = scramble((x ^ w.position) + step)
    high, low = scramble(x + step), scramble(x + 2 * step)
    return high & 0xFFFFFFFF, high >> 32, low & 0xFFFFFFFF, low >> 32
