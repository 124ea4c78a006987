"""What a drafter is and what it proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may follow a sequence.

    Attributes:
        tokens: the guess.
        odds: how likely a token of it is to be kept when the one before it was.
    """

    tokens: Sequence[int]
    odds: float


NO_DRAFT = Draft((), 0.0)


class Drafter(Protocol):
    """Guesses how one sequence goes on. It is made with the prompt and told of every token after it."""

    def append(self, tokens: Sequence[int]) -> None:
        """The sequence grew by these tokens."""
        ...

    def propose(self, most: int) -> Draft:
        """Up to `most` tokens that may follow. With 0 it only prepares, while the prompt is computed."""
        ...

    def learn(self, proposed: int, kept: int) -> None:
        """Of the last proposal so many tokens took rows, and so many of those were kept."""
        ...
