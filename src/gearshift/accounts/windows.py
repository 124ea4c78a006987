"""Windows of a tank: how long credits last before the window fills again. Pure rules, no clock of their own.

A window rolls from its first use (it opens with a turn and ends so many seconds later) or follows the calendar in UTC.
The newest period of a window stands until its end whatever the clock does: a clock that jumps back opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

Calendar = Literal["day", "week", "month"]


@dataclass(frozen=True, slots=True)
class Window:
    """So many credits for so long.

    Attributes:
        name: as users see it, for example `5h`.
        credits: millionths of a credit.
        length_s: seconds from first use to the end; None for a calendar window.
        every: the calendar unit (weeks begin on Monday); None for a rolling window.
    """

    name: str
    credits: int
    length_s: int | None = None
    every: Calendar | None = None

    def __post_init__(self) -> None:
        if (self.length_s is None) == (self.every is None):
            raise ValueError(f"The window {self.name!r} needs either a length or a calendar unit, not both.")

    def period(self, now: float) -> tuple[int, int]:
        """Start and end, in Unix seconds, of a period that opens now. The end is later than now."""
        if self.length_s is not None:
            return int(now), int(now) + max(1, self.length_s)
        day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        match self.every:
            case "week":
                start = day - timedelta(days=day.weekday())
                end = start + timedelta(days=7)
            case "month":
                start = day.replace(day=1)
                end = (start + timedelta(days=32)).replace(day=1)
            case _:
                start, end = day, day + timedelta(days=1)
        return int(start.timestamp()), int(end.timestamp())

    def minutes(self, now: float) -> int:
        """Length in minutes of the period around `now`, as limit headers show it."""
        start, end = self.period(now)
        return (end - start) // 60
