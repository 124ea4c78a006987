"""Where the last tokens of a sequence occurred before: an index over one text that grows with it.

Runs of eight, four and two tokens are kept in tables, each with a chain from its last place to the ones before. A
lookup walks a bounded part of a chain and compares backwards, so no text makes it slow; building goes in slices.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

RUNS = (8, 4, 2)
"""Lengths of the runs that are indexed, longest first."""

LONGEST = 32
"""Matches are compared so far back; longer ones count as equal."""

_ITEM = array("i").itemsize


class Places:
    """A text and the places of its runs. A place is the index of the token that followed the run.

    Attributes:
        tokens: the text.
        indexed: how many of its tokens are in the tables.
    """

    __slots__ = ("_before", "_last", "indexed", "tokens")

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = array("i", tokens)
        self.indexed = 0
        # Keys are hashes of the run's bytes: a false one is found out when the tokens are compared.
        self._last: tuple[dict[int, int], ...] = tuple({} for _ in RUNS)
        self._before = tuple(array("i") for _ in RUNS)

    @property
    def entries(self) -> int:
        """Entries of all tables: the memory that the index takes."""
        return sum(len(last) for last in self._last) + sum(len(before) for before in self._before)

    def index(self, most: int) -> int:
        """Index up to `most` further tokens; returns how many it were."""
        first = self.indexed
        end = min(len(self.tokens), first + most)
        start = max(first - RUNS[0], 0)
        data = self.tokens[start:end].tobytes()
        shift = start * _ITEM
        for run, last, before in zip(RUNS, self._last, self._before, strict=True):
            width = run * _ITEM
            get, put = last.get, before.append
            for place in range(first + 1, end + 1):
                stop = place * _ITEM - shift
                if place < run:
                    put(-1)
                    continue
                key = hash(data[stop - width : stop])
                put(get(key, -1))
                last[key] = place
        self.indexed = end
        return end - first

    def find(self, level: int, key: int, most: int) -> Sequence[int]:
        """Up to `most` places after the run with this key, the last one first; the end of the text is none."""
        place = self._last[level].get(key, -1)
        if place < 0:
            return ()
        before, end = self._before[level], len(self.tokens)
        found: list[int] = []
        while place > 0 and len(found) < most:
            if place < end:
                found.append(place)
            place = before[place - 1]
        return found

    def match(self, place: int, tail: Sequence[int]) -> int:
        """How many tokens before `place` equal the last ones of `tail`, as far as it goes."""
        tokens, length = self.tokens, 0
        most = min(place, len(tail))
        while length < most and tokens[place - 1 - length] == tail[-1 - length]:
            length += 1
        return length


def keys_of(tail: array[int]) -> list[tuple[int, int]]:
    """For every indexed length that `tail` has, longest first: its number and the key of the last run."""
    return [(level, hash(tail[-run:].tobytes())) for level, run in enumerate(RUNS) if len(tail) >= run]
