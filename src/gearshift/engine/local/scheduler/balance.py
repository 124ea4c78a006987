"""Where the gears stand: how far each is behind the share of the engine's time that it is guaranteed.

In every step in which a gear has rows it is credited with what those rows would have cost alone; the step takes
what all rows cost together. So a share of 0.6 means: the streams of the gear run at no less than 0.6 of the speed
that they would have with the engine to themselves. Rows that share a step help both sides. The idea is that of
stride and deficit scheduling: serve whoever is behind, and let nobody save up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

AHEAD_STEPS = 1.0
"""A gear may be ahead of its share by so many steps of one row per sequence: it cannot save up for later, and what
its prompts took is soon forgotten."""

BEHIND_STEPS = 4.0
"""A gear may be behind its share by so many of the largest steps; it does not demand more than this back."""


@dataclass(frozen=True, slots=True)
class Account:
    """One gear with work in a step.

    Attributes:
        share: fraction of the engine's time that it is guaranteed.
        credit: seconds that its rows of the step would have cost alone; 0 when it was left out.
    """

    rank: int
    share: float
    credit: float


@dataclass(frozen=True, slots=True)
class Balance:
    """How the gears stand between two steps.

    Attributes:
        lags: by rank, seconds that a gear with a share is behind it; only gears that have work.
        left_out: steps in a row in which some gear with work got no rows.
    """

    lags: tuple[tuple[int, float], ...] = ()
    left_out: int = 0

    def lag(self, rank: int) -> float:
        """Seconds that a gear is behind its share; 0 for one that had no work."""
        return next((lag for r, lag in self.lags if r == rank), 0.0)

    def after(
        self, accounts: Iterable[Account], seconds: float, *, most_ahead: float, most_behind: float, full: bool
    ) -> Balance:
        """The balance after a step.

        Args:
            accounts: the gears with a share that have work; the others start anew when they have.
            seconds: what the step takes.
            most_ahead, most_behind: bounds of a lag, in seconds.
            full: no gear with work was left out.
        """
        lags = tuple(
            (a.rank, min(max(self.lag(a.rank) + a.share * seconds - a.credit, -most_ahead), most_behind))
            for a in accounts
        )
        return Balance(lags, 0 if full else self.left_out + 1)
