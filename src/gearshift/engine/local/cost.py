"""What a step costs on this machine: seconds by number of rows and by the positions that they attend to.

Plain numbers: the loop feeds durations in, the scheduler and its limits take a curve out. It keeps no clock of its
own. Other tenants make single steps several times slower, so nothing here is a mean: the shape of the curve is made
of medians, and the speed of the machine at the moment is a factor on all of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

_ROW_COST = 0.15
"""Of a step of one row, for each further row: the shape that is assumed where nothing was measured."""


def _assumed(rows: float) -> float:
    return 1.0 + _ROW_COST * (rows - 1.0)


@dataclass(frozen=True, slots=True)
class StepCost:
    """A measured curve.

    Attributes:
        points: (rows, seconds without context), ascending in both; without any, a step of one row is 1.
        per_key: seconds for each position that a row attends to.
    """

    points: tuple[tuple[float, float], ...]
    per_key: float = 0.0

    def seconds(self, rows: int, keys: int = 0) -> float:
        """Predicted duration of a step of `rows` that attend to `keys` positions, added up over the rows: linear
        between the points, of the assumed shape beyond them. No rows take no time."""
        if rows <= 0:
            return 0.0
        points = self.points
        at = bisect_left(points, (rows, 0.0))
        if 0 < at < len(points):
            (r0, s0), (r1, s1) = points[at - 1], points[at]
            base = s0 + (s1 - s0) * (rows - r0) / (r1 - r0)
        elif points:
            nearest, seconds = points[min(at, len(points) - 1)]
            base = seconds * _assumed(rows) / _assumed(nearest)
        else:
            base = _assumed(rows)
        return base + self.per_key * keys

    def rows_within(self, seconds: float, least: int, most: int) -> int:
        """The largest of `least`, twice that, and so on up to `most` whose step stays within `seconds`; at least
        `least`. Unmeasured, it is `most`."""
        rows = least
        while rows * 2 <= most and (not self.points or self.seconds(rows * 2) <= seconds):
            rows *= 2
        return rows


UNMEASURED = StepCost(())


@dataclass(slots=True)
class _Bucket:
    """Steps of about the same number of rows, at the machine's usual speed."""

    rows: deque[int] = field(default_factory=lambda: deque[int](maxlen=_KEPT))
    seconds: deque[float] = field(default_factory=lambda: deque[float](maxlen=_KEPT))
    keys: deque[int] = field(default_factory=lambda: deque[int](maxlen=_KEPT))
    level: float = 0.0
    """Seconds of the typical step without its context."""

    def __len__(self) -> int:
        return len(self.rows)

    def slopes(self) -> list[float]:
        """Seconds per key, from pairs of steps with few keys and steps with many."""
        steps = sorted(zip(self.keys, self.seconds, strict=True))
        half = len(steps) // 2
        pairs = zip(steps[:half], steps[-half:], strict=True) if half else ()
        return [(s1 - s0) / (k1 - k0) for (k0, s0), (k1, s1) in pairs if k1 - k0 >= _KEYS_APART]

    def point(self, per_key: float) -> tuple[float, float]:
        """Rows and seconds of the typical step without its context. Once it is known it moves only when it is wrong:
        speed and shape that both followed every step would drift, and leave behind the buckets not in use."""
        level = median(max(s - per_key * k, s / 20) for s, k in zip(self.seconds, self.keys, strict=True))
        if len(self) < _KEPT or not 1 / _WRONG < level / self.level < _WRONG:
            self.level = level
        return median(self.rows), self.level


_KEPT = 63
"""Steps kept per bucket."""
_TRUSTED = 3
"""Steps of a bucket from which on it is believed."""
_WRONG = 1.1
"""A bucket's typical step is wrong when its steps differ by this factor."""
_RECENT = 41
"""Steps by which the machine's speed is judged."""
_FRESH = 32
"""Steps for which a curve is used again."""
_KEYS_APART = 512
"""Two steps tell something about the cost of keys when they differ by so many."""
_EXACT_ROWS = 16
"""Up to here every number of rows has its own bucket, beyond it there are four for a doubling."""


class CostMeter:
    """Collects step durations into a curve.

    Args:
        calibrated: a curve measured before serving; it stands where serving did not measure.
    """

    def __init__(self, calibrated: StepCost = UNMEASURED) -> None:
        self._calibrated = calibrated
        self._buckets: dict[int, _Bucket] = {}
        self._ratios: deque[float] = deque(maxlen=_RECENT)
        self._curve = calibrated
        self._age = 0
        self.speed = 1.0
        """Factor on the curve: above 1 the machine is slower now than usual."""

    def observe(self, rows: int, seconds: float, keys: int = 0) -> None:
        """Count one step of `rows` that attend to `keys` positions in all."""
        bucket = self._buckets.setdefault(_bucket_of(rows), _Bucket())
        if len(bucket) >= _TRUSTED:
            self._ratios.append(seconds / self._curve.seconds(rows, keys))
            self.speed = median(self._ratios)
        bucket.rows.append(rows)
        bucket.seconds.append(seconds / self.speed)
        bucket.keys.append(keys)
        self._age += 1
        if self._age >= _FRESH or len(bucket) <= _TRUSTED:
            self._curve, self._age = self._fitted(), 0

    def cost(self) -> StepCost:
        """The curve as the machine is now."""
        if self.speed == 1.0:
            return self._curve
        return StepCost(tuple((r, s * self.speed) for r, s in self._curve.points), self._curve.per_key * self.speed)

    def _fitted(self) -> StepCost:
        slopes = [slope for bucket in self._buckets.values() for slope in bucket.slopes()]
        per_key = max(0.0, median(slopes)) if len(slopes) >= _TRUSTED else self._calibrated.per_key
        points = dict(bucket.point(per_key) for bucket in self._buckets.values())
        measured = {_bucket_of(round(rows)) for rows in points}
        points |= {rows: s for rows, s in self._calibrated.points if _bucket_of(round(rows)) not in measured}
        return StepCost(rising(sorted(points.items())), per_key)


class SteadyMeter(CostMeter):
    """Believes its curve whatever steps take, so that what is drafted does not depend on the machine's moment."""

    def observe(self, rows: int, seconds: float, keys: int = 0) -> None:
        """Nothing is learned from a step."""


def _bucket_of(rows: int) -> int:
    """Upper ends are multiples of the tile, which is where a step becomes longer."""
    if rows <= _EXACT_ROWS:
        return rows
    octave = (rows - 1).bit_length() - 5
    return _EXACT_ROWS + 4 * octave + (rows - 1) // (4 << octave) - 3


def rising(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Points in order of rows, changed as little as possible so that more rows never take less time: neighbours
    that disagree get their mean (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for _, seconds in points:
        total, count = seconds, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            total, count = total + pools[-1][0], count + pools[-1][1]
            pools.pop()
        pools.append((total, count))
    levels = [total / count for total, count in pools for _ in range(count)]
    curve = tuple((rows, level) for (rows, _), level in zip(points, levels, strict=True))
    assert all(a[1] <= b[1] for a, b in pairwise(curve))
    return curve
