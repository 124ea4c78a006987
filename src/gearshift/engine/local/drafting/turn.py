"""The drafts of one sequence: the longest match of its last tokens in what it may draft from.

Sources are the sequence itself (prompt, tool outputs and answer so far), the text predicted for the turn, and the
caller's recent outputs. A copy in progress is continued without a search.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from gearshift.engine.local.drafting.acceptance import Acceptance
from gearshift.engine.local.drafting.copying import Copying
from gearshift.engine.local.drafting.draft import NO_DRAFT, Draft
from gearshift.engine.local.drafting.places import LONGEST, RUNS, Places, keys_of
from gearshift.engine.local.drafting.recent import Recent

INDEXED_PER_PROPOSAL = 2048
"""Tokens that are indexed in one call of `propose`, so that a long prompt does not hold up the loop."""

MOST_CANDIDATES = 12
"""Places of one source that are looked at for each indexed length."""

_SURE = 12
"""A copy of so many tokens is continued without a search."""


class TurnDrafts:
    """A drafter (see `Drafter`) without a second model.

    Attributes:
        examined: places looked at by the last proposal.
    """

    __slots__ = ("_acceptance", "_bucket", "_copying", "_own", "_rest", "examined")

    def __init__(self, prompt: Sequence[int], prediction: Sequence[int] = (), recent: Recent | None = None) -> None:
        self._own = Places(prompt)
        self._rest: list[Places] = []
        self._copying = Copying()
        self._acceptance = Acceptance()
        self._bucket = 0
        self.examined = 0
        if prediction:
            predicted = Places(prediction)
            self._rest.append(predicted)
            # Until the answer says otherwise, it begins as predicted.
            self._copying.follow(predicted, 0, 1, array("i"))
        if recent is not None:
            self._rest.extend(recent.outputs)

    @property
    def entries(self) -> int:
        """Index entries of this turn, the caller's recent outputs not counted."""
        return self._own.entries

    def append(self, tokens: Sequence[int]) -> None:
        """The sequence grew by these tokens."""
        self._own.tokens.extend(tokens)
        for token in tokens:
            self._copying.append(token)

    def index_more(self, most: int) -> int:
        """Index up to `most` tokens of the sources that are not indexed yet; returns how many it were."""
        done = self._own.index(most)
        for source in self._rest:
            if done < most:
                done += source.index(most - done)
        return done

    def propose(self, most: int) -> Draft:
        """Up to `most` tokens that may follow; none when nothing matches or drafts are hopeless."""
        self.examined = 0
        self.index_more(INDEXED_PER_PROPOSAL)
        if most < 1:
            return NO_DRAFT
        tail = self._own.tokens[-LONGEST:]
        copying = self._copying
        if copying.source is None or copying.apart or copying.run < _SURE:
            found = self._search(tail)
            if found is None:
                return NO_DRAFT
            source, place, run = found
        else:
            source, place, run = copying.source, copying.place, copying.run
        self._bucket = bucket = Acceptance.bucket(run)
        length = self._acceptance.length(bucket, most)
        if not length:
            return NO_DRAFT
        tokens = copying.draft(source, place, length)
        return Draft(tokens, self._acceptance.odds(bucket)) if tokens else NO_DRAFT

    def learn(self, proposed: int, kept: int) -> None:
        """Of the last proposal so many tokens took rows, and so many of those were kept."""
        if proposed > 0:
            self._acceptance.learn(self._bucket, proposed, kept)

    def _search(self, tail: array[int]) -> tuple[Places, int, int] | None:
        """The source and place to draft from, and the length of the match there."""
        copying = self._copying
        best: tuple[Places, int, int] | None = None
        guess: tuple[Places, int, int] | None = None
        if copying.source is not None:
            if not copying.apart:
                best = copying.source, copying.place, copying.run
            elif (rejoined := copying.rejoined(tail)) is not None:
                guess = copying.source, *rejoined
        for source, place, run in self._candidates(tail):
            if best is None or run > best[2]:
                best = source, place, run
        if guess is not None and (best is None or guess[2] >= best[2] or (guess[2] == 0 and best[2] < 4)):
            if guess[2] >= 1:
                copying.follow(*guess, tail)
            return guess
        if best is not None and (best[0] is not copying.source or best[1] != copying.place):
            copying.follow(*best, tail)
        return best

    def _candidates(self, tail: array[int]) -> Iterator[tuple[Places, int, int]]:
        """Places after a match, from the longest indexed length at which there is one."""
        for level, key in keys_of(tail):
            found = False
            for source in self._sources():
                end = len(source.tokens)
                for place in islice(source.find(level, key, end), MOST_CANDIDATES):
                    self.examined += 1
                    run = source.match(place, tail)
                    if run >= RUNS[level]:
                        found = True
                        yield source, place, run
            if found:
                return

    def _sources(self) -> Iterable[Places]:
        yield self._own
        yield from self._rest
