"""What is kept of the measured slices, and how they are summed up: medians, quartiles, paired ratios.

Pure functions over plain data, no clock. The rule that leaves slices out is applied to the probes alone, never to the
measured values, so it cannot choose a result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

SLOW_FACTOR = 1.3
"""A slice counts as slow when its probe took longer than this many times the best quartile of the run's probes."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One turn of one arm.

    Attributes:
        plan: what was measured.
        arm: who was measured.
        round, turn: the place in the run; slices of one round and turn are pairs (turn 0 forward, 1 backward).
        values: measure -> tokens per second.
        probe_s: the slower of the probes before and after, in seconds.
        seconds: how long the slice took, warm-up included.
        idle_cpu_s: processor seconds that all other workers took meanwhile.
        notes: anything else worth keeping, by name.
    """

    plan: str
    arm: str
    round: int
    turn: int
    values: Mapping[str, float]
    probe_s: float
    seconds: float
    idle_cpu_s: float
    notes: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of `count` samples."""

    median: float
    low: float
    high: float
    count: int


def quantile(values: Iterable[float], fraction: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan's type 7). Raises ValueError when empty."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("A quantile needs at least one value.")
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(values: Sequence[float]) -> Spread | None:
    """Median and quartiles, or None without values."""
    if not values:
        return None
    return Spread(quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75), len(values))


def slow_limit(slices: Iterable[Slice]) -> float:
    """The probe time, in seconds, above which a slice is left out."""
    return SLOW_FACTOR * quantile((each.probe_s for each in slices), 0.25)


def without_slow(slices: Sequence[Slice]) -> list[Slice]:
    """The slices whose probe was within the limit of all given slices."""
    if not slices:
        return []
    limit = slow_limit(slices)
    return [each for each in slices if each.probe_s <= limit]


def values_of(slices: Iterable[Slice], arm: str, measure: str) -> list[float]:
    """All values of one measure of one arm."""
    return [each.values[measure] for each in slices if each.arm == arm and measure in each.values]


def paired_ratios(slices: Iterable[Slice], measure: str, arm: str, other: str) -> list[float]:
    """value(arm) / value(other) of all pairs that are still complete."""
    by_place: dict[tuple[int, int], dict[str, float]] = {}
    for each in slices:
        if measure in each.values:
            by_place.setdefault((each.round, each.turn), {})[each.arm] = each.values[measure]
    return [pair[arm] / pair[other] for pair in by_place.values() if arm in pair and other in pair]


def inner_ratios(slices: Iterable[Slice], arm: str, measure: str, other_measure: str) -> list[float]:
    """value(measure) / value(other_measure) within the same slice of one arm."""
    return [
        each.values[measure] / each.values[other_measure]
        for each in slices
        if each.arm == arm and measure in each.values and other_measure in each.values
    ]


def best_arm(slices: Sequence[Slice], measure: str, arms: Sequence[str]) -> str:
    """The arm with the highest median of a measure. Raises ValueError when none of them has a value."""
    medians = {arm: found.median for arm in arms if (found := spread(values_of(slices, arm, measure))) is not None}
    if not medians:
        raise ValueError(f"None of {', '.join(arms)} has a value for {measure}.")
    return max(medians, key=lambda arm: medians[arm])


def idle_share(slices: Iterable[Slice]) -> float:
    """The largest share of one core that the waiting workers took during any slice."""
    return max((each.idle_cpu_s / each.seconds for each in slices), default=0.0)
