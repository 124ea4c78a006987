"""A copy in progress: where in its source it is, where it left it, and the edits seen on the way.

An answer that edits a text follows it, leaves it at an edit and rejoins it a few tokens later. The tokens that were
replaced and those that stand in their place are remembered, so that a rename is drafted through at its next place.
"""

from __future__ import annotations

from array import array

from gearshift.engine.local.drafting.places import LONGEST, Places

MOST_APART = 32
"""A copy that left its source so many tokens ago is over; it also rejoins no further ahead."""

_MOST_EDIT = 12
"""Longest edit that is remembered, in tokens on either side."""
_MOST_EDITS = 64


class Edit:
    """Tokens of a source that were replaced. `trust` goes up when that happens again, and down when it does not."""

    __slots__ = ("new", "old", "trust")

    def __init__(self, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        self.old = old
        self.new = new
        self.trust = 1


class Copying:
    """The place of a copy in its source.

    Attributes:
        source, place: what the next token is likely to be; no source, no copy.
        run: tokens copied without a break up to there.
        apart: tokens since the copy left its source at `place`; 0 while it is on it.
    """

    __slots__ = ("_edits", "apart", "place", "run", "source")

    def __init__(self) -> None:
        self.source: Places | None = None
        self.place = 0
        self.run = 0
        self.apart = 0
        self._edits: dict[int, list[Edit]] = {}

    def follow(self, source: Places, place: int, run: int, tail: array[int]) -> None:
        """The answer was found to follow this source, with its last `run` tokens before `place`."""
        if self.apart and source is self.source and 0 <= place - run - self.place <= _MOST_EDIT and self.apart >= run:
            changed = self.apart - run
            if changed <= _MOST_EDIT:
                old = source.tokens[self.place : place - run]
                self._remember(tuple(old), tuple(tail[len(tail) - self.apart : len(tail) - run]))
        self.source, self.place, self.run, self.apart = source, place, run, 0

    def append(self, token: int) -> None:
        """The answer goes on with this token."""
        source = self.source
        if source is None:
            return
        if self.apart:
            self.apart += 1
            if self.apart > MOST_APART:
                self.source = None
        elif self.place < len(source.tokens) and source.tokens[self.place] == token:
            self.place += 1
            self.run = min(self.run + 1, LONGEST)
        else:
            self.apart = 1

    def rejoined(self, tail: array[int]) -> tuple[int, int] | None:
        """Where the answer is likely to rejoin its source, and how many tokens match there (0: a known edit or the
        same number of other tokens were put in)."""
        source, place, apart = self.source, self.place, self.apart
        if source is None or not apart:
            return None
        for edit in self._edits.get(source.tokens[place], ()) if place < len(source.tokens) else ():
            if len(edit.new) == apart and tuple(tail[-apart:]) == edit.new and self._stands(edit, place):
                return place + len(edit.old), 0
        best: tuple[int, int] | None = None
        window = source.tokens[place : place + MOST_APART]
        last = tail[-1]
        for offset, token in enumerate(window):
            if token == last:
                run = min(source.match(place + offset + 1, tail[-4:]), apart, offset + 1)
                if run and (best is None or run > best[1]):
                    best = place + offset + 1, run
        if best is None and apart <= 3 and place + apart < len(source.tokens):
            best = place + apart, 0
        return best

    def draft(self, source: Places, place: int, most: int) -> array[int]:
        """Up to `most` tokens of the source from `place` on, with the edits that are trusted."""
        tokens = source.tokens[place : place + most]
        if not self._edits or source is not self.source:
            return tokens
        draft = array("i")
        while len(draft) < most and place < len(source.tokens):
            token = source.tokens[place]
            for edit in self._edits.get(token, ()):
                if edit.trust > 0 and self._stands(edit, place):
                    draft.extend(edit.new)
                    place += len(edit.old)
                    break
            else:
                draft.append(token)
                place += 1
        return draft[:most]

    def _stands(self, edit: Edit, place: int) -> bool:
        source = self.source
        return source is not None and tuple(source.tokens[place : place + len(edit.old)]) == edit.old

    def _remember(self, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        if not old or not new:
            return
        edits = self._edits.setdefault(old[0], [])
        for edit in edits:
            if edit.old == old:
                edit.trust = min(edit.trust + 1, 4) if edit.new == new else edit.trust - 1
                if edit.new == new or edit.trust > 0:
                    return
                edits.remove(edit)
                break
        if sum(map(len, self._edits.values())) < _MOST_EDITS:
            edits.insert(0, Edit(old, new))

    def doubt(self, place: int) -> None:
        """At this place of the source an edit was drafted, but it was not made."""
        source = self.source
        if source is None or place >= len(source.tokens):
            return
        for edit in self._edits.get(source.tokens[place], ()):
            if edit.trust > 0 and self._stands(edit, place):
                edit.trust -= 1
