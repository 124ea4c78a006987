"""Where one answer stands in its grammar: the tokens that may follow, and those that must.

What may follow depends on the answer's tokens alone, not on the drafts that were looked at meanwhile; so a row's mask
is the same in every gear.
"""

from __future__ import annotations

from collections.abc import Sequence

import llguidance
import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint32]


def mask_words(vocab: int) -> int:
    """32-bit words of a mask over so many token ids."""
    return -(-vocab // 32)


class Matcher:
    """Follows one answer through its grammar. Belongs to one thread at a time."""

    __slots__ = ("_ends", "_matcher", "_words")

    def __init__(self, matcher: llguidance.LLMatcher, ends: frozenset[int], vocab: int) -> None:
        self._matcher = matcher
        self._ends = ends
        self._words = mask_words(vocab)

    def copy(self) -> Matcher:
        """Another answer that stands where this one does."""
        twin = Matcher.__new__(Matcher)
        twin._matcher, twin._ends, twin._words = self._matcher.deep_copy(), self._ends, self._words
        return twin

    @property
    def complete(self) -> bool:
        """The grammar is satisfied and allows nothing more."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def problem(self) -> str:
        """Why the grammar cannot be followed any farther; empty while it can."""
        return self._matcher.get_error()

    def advance(self, token: int) -> None:
        """The answer grew by this token, which its mask allowed and which does not end it."""
        self._matcher.consume_token(token)

    def fitting(self, draft: Sequence[int]) -> int:
        """How many tokens of a draft the grammar allows, up to one that would end the answer."""
        tokens = list(draft)
        end = next((at for at, token in enumerate(tokens) if token in self._ends), len(tokens))
        return self._matcher.validate_tokens(tokens[:end]) if end else 0

    def forced(self) -> Sequence[int]:
        """Tokens that must follow, as far as the grammar leaves no choice. They make perfect drafts."""
        return self._matcher.compute_ff_tokens()

    def masks(self, draft: Sequence[int]) -> list[Mask]:
        """What may follow now, and what after each token of a draft that fits: bit `id % 32` of word `id / 32` is set
        for a token that is allowed. Ends are allowed only where the grammar is satisfied. All bits are clear once
        there is a `problem`."""
        masks = [self._mask()]
        for token in draft:
            self._matcher.consume_token(token)
            masks.append(self._mask())
        if draft:
            self._matcher.rollback(len(draft))
        return masks

    def _mask(self) -> Mask:
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)[: self._words]
        return np.zeros(self._words, np.uint32) if self._matcher.is_error() else mask
