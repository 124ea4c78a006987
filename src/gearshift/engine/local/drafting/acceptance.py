"""How likely drafts are kept, learned from what became of the ones before.

Counts are kept by the length of the match that a draft came from, begin with an assumption and forget, so that a
sequence that turns from copying to free text stops paying for drafts within a few steps.
"""

from __future__ import annotations

_BY_MATCH = (0.3, 0.45, 0.7, 0.8, 0.9, 0.95, 0.98)
_BY_REJOINING = (0.3, 0.6, 0.8, 0.9)
"""Odds assumed at first, by the number of binary digits of the match's length: for a match anywhere, and for one close
behind the place where a copy left its source. Without a match the second is a mere guess."""

_PRIOR = _BY_MATCH + _BY_REJOINING

_PRIOR_WEIGHT = 3.0
"""The assumption counts as much as so many tokens."""

_FORGET = 0.88
"""What earlier drafts still count after one more."""

_MOST_WEIGHT = 5.0
"""Tokens that one draft counts for at most, or many failures would be needed to outweigh a long one."""

_HOPELESS = 0.12
"""Below these odds there is no draft."""

_RETRY = 12
"""But one in so many proposals is made all the same, of one token, to learn whether that is still so."""

_FAR = 64
_SHRINK = 0.8
"""A draft goes on a little farther than those before it were kept; this is how fast it gives in."""

_WORTH = 0.01
"""A draft ends where the odds that it is kept so far fall below this; the scheduler may well grant less."""


class Acceptance:
    """What became of the drafts of one sequence."""

    __slots__ = ("_kept", "_reach", "_since", "_tried")

    def __init__(self) -> None:
        self._kept = [prior * _PRIOR_WEIGHT for prior in _PRIOR]
        self._tried = [_PRIOR_WEIGHT] * len(_PRIOR)
        self._reach = [float(_FAR)] * len(_PRIOR)
        self._since = 0

    @staticmethod
    def bucket(match: int, rejoins: bool = False) -> int:
        """The bucket that a match of so many tokens belongs to."""
        if rejoins:
            return len(_BY_MATCH) + min(match.bit_length(), len(_BY_REJOINING) - 1)
        return min(match.bit_length(), len(_BY_MATCH) - 1)

    def odds(self, bucket: int) -> float:
        """How likely a drafted token is kept when the one before it was."""
        return min(self._kept[bucket] / self._tried[bucket], 0.995)

    def length(self, bucket: int, most: int) -> int:
        """How long a draft is worth its rows, `most` at most."""
        odds = self.odds(bucket)
        if odds < _HOPELESS:
            self._since += 1
            if self._since < _RETRY:
                return 0
            self._since = 0
            return min(most, 1)
        most = min(most, int(self._reach[bucket]))
        length, kept = 0, odds
        while length < most and kept >= _WORTH:
            length += 1
            kept *= odds
        return length

    def learn(self, bucket: int, used: int, kept: int) -> None:
        """Of a draft `used` tokens took rows, of which the first `kept` were kept."""
        tried = min(kept + 1, used)
        # Odds alone would have drafts that break at the same early place go on far behind it.
        reach = self._reach[bucket]
        self._reach[bucket] = max(reach, 2.0 * used) if kept == used else max(kept * 1.5 + 2, reach * _SHRINK)
        weight = min(1.0, _MOST_WEIGHT / tried)
        self._kept[bucket] = self._kept[bucket] * _FORGET + kept * weight
        self._tried[bucket] = self._tried[bucket] * _FORGET + tried * weight
