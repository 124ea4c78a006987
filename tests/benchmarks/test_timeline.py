"""Rates of streams that start and end at different moments."""

from __future__ import annotations

import pytest
from benchmarks.engine.arms.timeline import Timeline, common_window


def steady(start: float, count: int, every: float = 1.0) -> Timeline:
    return Timeline([start + i * every for i in range(count)], [1.0] * count)


def test_only_the_common_time_counts() -> None:
    begin, end, tokens = common_window([steady(0, 20), steady(5, 20)], warmup=0)
    assert (begin, end) == (5, 19)
    assert tokens == 14 + 14


def test_warmup_moves_the_begin() -> None:
    begin, end, tokens = common_window([steady(0, 11)], warmup=4)
    assert (begin, end, tokens) == (4, 10, 6)


def test_streams_that_never_run_together_are_refused() -> None:
    with pytest.raises(ValueError, match="more tokens"):
        common_window([steady(0, 5), steady(10, 5)], warmup=0)
    with pytest.raises(ValueError, match="no more than 5"):
        common_window([steady(0, 5)], warmup=5)


def test_events_are_scaled_to_the_tokens_that_usage_tells() -> None:
    scaled = Timeline([0.0, 1.0, 2.0], [1.0, 1.0, 2.0]).scaled_to(8)
    assert scaled.tokens == [2.0, 2.0, 4.0]
    assert scaled.moments == [0.0, 1.0, 2.0]
