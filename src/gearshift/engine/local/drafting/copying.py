"""A copy in progress: where in its source it is, where it left it, and the edits seen on the way.

An answer that edits a text follows it, leaves it at an edit and rejoins it a few tokens later. The tokens that were
replaced and those that stand in their place are remembered, so that a rename is drafted through at its next place.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from gearshift.engine.local.drafting.places import LONGEST, Places

MOST_APART = 64
"""A copy that left its source so many tokens ago is over; it also rejoins no further ahead."""

_MOST_EDIT = 12
"""Longest edit that is remembered, in tokens on either side."""

_MOST_EDITS = 64

_COMPARED = 6
"""Tokens by which the places where a copy may rejoin its source are told apart."""


class Edit:
    """Tokens of a source that were replaced. `trust` goes up when that happens again, and down when it does not."""

    __slots__ = ("new", "old", "trust")

    def __init__(self, old: array[int], new: array[int]) -> None:
        self.old = old
        self.new = new
        self.trust = 1


class Copying:
    """The place of a copy in its source.

    Attributes:
        source, place: what the next token is likely to be; no source, no copy.
        run: tokens copied up to there, those in known edits not counted.
        left: tokens of the answer since the copy left its source at `place`; none while it is on it.
    """

    __slots__ = ("_edits", "left", "place", "run", "source")

    def __init__(self) -> None:
        self.source: Places | None = None
        self.place = 0
        self.run = 0
        self.left = array("i")
        self._edits: dict[int, list[Edit]] = {}

    def follow(self, source: Places, place: int, run: int) -> None:
        """The answer was found to follow this source, with its last `run` tokens before `place`."""
        changed = len(self.left) - run
        if source is self.source and 0 < changed <= _MOST_EDIT and 0 < place - run - self.place <= _MOST_EDIT:
            self._remember(source.tokens[self.place : place - run], self.left[:changed])
        self.source, self.place, self.run = source, place, run
        del self.left[:]

    def append(self, token: int) -> None:
        """The answer goes on with this token."""
        source, left = self.source, self.left
        if source is None:
            return
        if not left and self.place < len(source.tokens) and source.tokens[self.place] == token:
            if self._edits:
                for edit in self._standing(source, self.place):
                    edit.trust = max(edit.trust - 1, 0)
            self.place += 1
            self.run = min(self.run + 1, LONGEST)
            return
        left.append(token)
        for edit in self._standing(source, self.place):
            if edit.new == left and self.place + len(edit.old) < len(source.tokens):
                edit.trust = min(edit.trust + 1, 4)
                self.place += len(edit.old)
                del left[:]
                return
        if len(left) > MOST_APART:
            self.source = None
            del left[:]

    def rejoined(self) -> tuple[int, int] | None:
        """Where the answer is likely to rejoin the source that it left, and how many tokens match there; none do
        where the one token since is taken to stand for one of the source."""
        source, place, left = self.source, self.place, self.left
        if source is None or not left:
            return None
        best: tuple[int, int] | None = None
        last, tail = left[-1], left[-_COMPARED:]
        # The last token of the source leads nowhere, and in the answer's own text it would be found to equal itself.
        for offset, token in enumerate(source.tokens[place : min(place + MOST_APART, len(source.tokens) - 1)], 1):
            if token == last:
                run = min(source.match(place + offset, tail), offset)
                if best is None or run > best[1]:
                    best = place + offset, run
        if best is not None:
            return best[0], min(source.match(best[0], left), best[0] - place)
        if len(left) == 1 and place + 1 < len(source.tokens):
            return place + 1, 0
        return None

    def draft(self, source: Places, place: int, most: int) -> array[int]:
        """Up to `most` tokens of the source from `place` on, with the edits that are trusted."""
        if not self._edits or source is not self.source:
            return source.tokens[place : place + most]
        draft = array("i")
        while len(draft) < most and place < len(source.tokens):
            for edit in self._standing(source, place):
                if edit.trust > 0:
                    draft.extend(edit.new)
                    place += len(edit.old)
                    break
            else:
                draft.append(source.tokens[place])
                place += 1
        return draft[:most]

    def _standing(self, source: Places, place: int) -> Iterator[Edit]:
        """The remembered edits whose old tokens stand at this place."""
        if place < len(source.tokens):
            for edit in self._edits.get(source.tokens[place], ()):
                if source.tokens[place : place + len(edit.old)] == edit.old:
                    yield edit

    def _remember(self, old: array[int], new: array[int]) -> None:
        edits = self._edits.setdefault(old[0], [])
        for edit in edits:
            if edit.old == old and edit.new == new:
                edit.trust = min(edit.trust + 1, 4)
                return
        edits.insert(0, Edit(old, new))
        del edits[4:]
        if len(self._edits) > _MOST_EDITS:
            del self._edits[next(iter(self._edits))]
