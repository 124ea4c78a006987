"""The same questions answered the slow way, by looking everywhere."""

from __future__ import annotations

from collections.abc import Sequence


def longest_match(tokens: Sequence[int], shortest: int = 2, longest: int = 32) -> int:
    """Length of the longest run at the end of `tokens` that occurred before, 0 when shorter than `shortest`."""
    best = 0
    for place in range(1, len(tokens)):
        length = 0
        while length < min(place, longest) and tokens[place - 1 - length] == tokens[-1 - length]:
            length += 1
        best = max(best, length)
    return best if best >= shortest else 0


def occurs(part: Sequence[int], *texts: Sequence[int]) -> bool:
    """Whether one of the texts holds `part`."""
    return any(list(text[start : start + len(part)]) == list(part) for text in texts for start in range(len(text)))
