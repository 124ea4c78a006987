"""What a step costs on this machine, measured while serving: seconds by number of rows.

Plain numbers: the loop feeds durations in, the scheduler's limits come out. It keeps no clock of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

_FORGET = 0.2
"""Weight of the newest step in a bucket's mean: the machine's speed changes under other tenants."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """A measured curve: (rows, seconds), ascending in rows."""

    points: tuple[tuple[float, float], ...]

    def seconds(self, rows: int) -> float:
        """Predicted duration of a step of `rows`: linear between the points, in proportion beyond the last."""
        points = self.points
        at = bisect_left(points, (rows, 0.0))
        if at == 0:
            return points[0][1]
        if at == len(points):
            return points[-1][1] * rows / points[-1][0]
        (r0, s0), (r1, s1) = points[at - 1], points[at]
        return s0 + (s1 - s0) * (rows - r0) / (r1 - r0)

    def rows_within(self, seconds: float, least: int, most: int) -> int:
        """The largest of `least`, twice that, and so on up to `most` whose step stays within `seconds`; at least
        `least`. Unmeasured, it is `most`."""
        rows = least
        while rows * 2 <= most and (not self.points or self.seconds(rows * 2) <= seconds):
            rows *= 2
        return rows


class CostMeter:
    """Collects step durations into one mean per power of two of rows."""

    def __init__(self) -> None:
        self._buckets: dict[int, tuple[float, float]] = {}

    def observe(self, rows: int, seconds: float) -> None:
        """Count one step."""
        bucket = rows.bit_length()
        old = self._buckets.get(bucket)
        if old is None:
            self._buckets[bucket] = (float(rows), seconds)
        else:
            self._buckets[bucket] = (old[0] + _FORGET * (rows - old[0]), old[1] + _FORGET * (seconds - old[1]))

    def cost(self) -> StepCost:
        """The curve so far."""
        return StepCost(tuple(self._buckets[bucket] for bucket in sorted(self._buckets)))
