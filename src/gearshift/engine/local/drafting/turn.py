"""The drafts of one sequence: the longest match of its last tokens in what it may draft from.

Sources are the sequence itself (prompt, tool outputs and answer so far), the text predicted for the turn, and the
caller's recent outputs. A copy in progress is continued without a search.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from gearshift.engine.local.drafting.acceptance import Acceptance
from gearshift.engine.local.drafting.copying import Copying
from gearshift.engine.local.drafting.draft import NO_DRAFT, Draft
from gearshift.engine.local.drafting.places import LONGEST, RUNS, Places, keys_of
from gearshift.engine.local.drafting.recent import Recent

INDEXED_PER_PROPOSAL = 1024
"""Tokens that are indexed in one call of `propose`: about a millisecond, so that a long prompt does not hold up the
loop."""

MOST_CANDIDATES = 24
"""Places that are looked at for each indexed length, over all sources."""

_OF_ONE_SOURCE = 12
"""And of one source."""

_SURE = 12
"""A copy of so many tokens is continued without a search."""

_TAKEN_UP = 6
"""A match of so many tokens elsewhere is a new copy; a shorter one does not make a copy forget where it was."""


class TurnDrafts:
    """A drafter (see `Drafter`) without a second model.

    Attributes:
        examined: places looked at by the last proposal.
    """

    __slots__ = ("_acceptance", "_bucket", "_copying", "_own", "_sources", "examined")

    def __init__(self, prompt: Sequence[int], prediction: Sequence[int] = (), recent: Recent | None = None) -> None:
        self._own = Places(prompt)
        self._sources = [self._own]
        self._copying = Copying()
        self._acceptance = Acceptance()
        self._bucket = 0
        self.examined = 0
        if prediction:
            predicted = Places(prediction)
            self._sources.append(predicted)
            # Until the answer says otherwise, it begins as predicted.
            self._copying.follow(predicted, 0, _SURE)
        if recent is not None:
            self._sources.extend(recent.outputs)

    @property
    def entries(self) -> int:
        """Index entries of this turn, the caller's recent outputs not counted."""
        return self._own.entries

    def append(self, tokens: Sequence[int]) -> None:
        """The sequence grew by these tokens."""
        own, copying = self._own.tokens, self._copying
        for token in tokens:
            own.append(token)
            copying.append(token)

    def index_more(self, most: int) -> int:
        """Index up to `most` tokens of the sources that are not indexed yet; returns how many it were."""
        done = 0
        for source in self._sources:
            if source.indexed < len(source.tokens) and done < most:
                done += source.index(most - done)
        return done

    def propose(self, most: int) -> Draft:
        """Up to `most` tokens that may follow; none when nothing matches or drafts are hopeless."""
        self.examined = 0
        self.index_more(INDEXED_PER_PROPOSAL)
        if most < 1:
            return NO_DRAFT
        copying, acceptance = self._copying, self._acceptance
        if copying.source is None or copying.left or copying.run < _SURE:
            found = self._search(self._own.tokens[-LONGEST:])
            if found is None:
                return NO_DRAFT
            source, place, self._bucket = found
        else:
            source, place, self._bucket = copying.source, copying.place, acceptance.bucket(copying.run)
        length = acceptance.length(self._bucket, most)
        if not length:
            return NO_DRAFT
        tokens = copying.draft(source, place, length)
        if tokens and source is self._own and len(tokens) < length:  # the end of the answer: it repeats itself
            tokens = (tokens * (length // len(tokens) + 1))[:length]
        return Draft(tokens, acceptance.odds(self._bucket)) if tokens else NO_DRAFT

    def learn(self, proposed: int, kept: int) -> None:
        """Of the last proposal so many tokens took rows, and so many of those were kept."""
        if proposed > 0:
            self._acceptance.learn(self._bucket, proposed, kept)

    def _search(self, tail: array[int]) -> tuple[Places, int, int] | None:
        """The source and place to draft from, and the bucket of the match there."""
        copying, acceptance = self._copying, self._acceptance
        best: tuple[Places, int, int] | None = None
        if copying.source is not None and not copying.left:
            best = copying.source, copying.place, copying.run
        for source, place, run in self._candidates(tail):
            if best is None or run > best[2]:
                best = source, place, run
        rejoined = copying.rejoined()
        if copying.source is not None and rejoined is not None:
            place, run = rejoined
            bucket = acceptance.bucket(run, rejoins=True)
            if best is None or acceptance.odds(bucket) >= acceptance.odds(acceptance.bucket(best[2])):
                found = copying.source, place, bucket
                if run > 0:
                    copying.follow(copying.source, place, run)
                return found
        if best is None:
            return None
        source, place, run = best
        if copying.source is None or source is copying.source or run >= min(copying.run, _TAKEN_UP):
            copying.follow(source, place, run)
        return source, place, acceptance.bucket(run)

    def _candidates(self, tail: array[int]) -> Iterator[tuple[Places, int, int]]:
        """Places after a match, from the longest indexed length at which there is one."""
        for level, key in keys_of(tail):
            found, most = False, MOST_CANDIDATES
            for source in self._sources:
                for place in source.find(level, key, min(most, _OF_ONE_SOURCE)):
                    most -= 1
                    self.examined += 1
                    run = source.match(place, tail)
                    if run >= RUNS[level]:
                        found = True
                        yield source, place, run
            if found:
                return
