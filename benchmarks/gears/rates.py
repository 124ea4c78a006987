"""Rates out of the moments at which tokens arrived. Pure functions, no clock.

A turn is timed from its first token on; streams beside it are timed between two of their own arrivals, so that the
part of a step at either end of the window does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from benchmarks.engine.arms.timeline import Timeline

Window = tuple[float, float]
"""Begin and end, in seconds."""


def pooled_rate(timelines: Sequence[Timeline]) -> float | None:
    """Tokens per second of one or more turns after their first arrivals; None when none had a second one."""
    seconds = sum(each.moments[-1] - each.moments[0] for each in timelines if each.moments)
    tokens = sum(sum(each.tokens[1:]) for each in timelines)
    return tokens / seconds if seconds > 0 else None


def rate_within(timeline: Timeline, windows: Sequence[Window]) -> float:
    """Tokens per second of a stream in some windows together; 0 when nothing arrived in any."""
    tokens = seconds = 0.0
    for window in windows:
        found_tokens, found_seconds = _span(timeline, *window)
        tokens, seconds = tokens + found_tokens, seconds + found_seconds
    return tokens / seconds if seconds > 0 else 0.0


def total_within(timelines: Sequence[Timeline], windows: Sequence[Window]) -> float:
    """Tokens per second of all streams together."""
    return sum(rate_within(each, windows) for each in timelines)


def _span(timeline: Timeline, begin: float, end: float) -> tuple[float, float]:
    """Tokens and seconds between the first and the last arrival in a window. With a single arrival, or none, it is
    what arrived in the whole window."""
    inside = [(m, t) for m, t in zip(timeline.moments, timeline.tokens, strict=True) if begin <= m <= end]
    if not inside or inside[-1][0] <= inside[0][0]:
        return sum(tokens for _, tokens in inside), max(end - begin, 0.0)
    return sum(tokens for _, tokens in inside[1:]), inside[-1][0] - inside[0][0]


def usual_gap(timelines: Sequence[Timeline], windows: Sequence[Window]) -> float | None:
    """Median time between two arrivals of one stream in some windows: the length of a step when all take part."""
    gaps = [
        after - before
        for each in timelines
        for before, after in pairwise(each.moments)
        for begin, end in windows
        if begin <= before and after <= end
    ]
    return median(gaps) if gaps else None


def first_difference(expected: Sequence[int], found: Sequence[int]) -> int | None:
    """Where two answers part; None when they are the same."""
    for at, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            return at
    return None if len(expected) == len(found) else min(len(expected), len(found))
