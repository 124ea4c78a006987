from __future__ import annotations

import pytest
from benchmarks.engine.arms.timeline import Timeline
from benchmarks.gears.rates import first_difference, pooled_rate, rate_within, total_within, usual_gap


def steady(begin: float, gap: float, count: int, tokens: float = 1.0) -> Timeline:
    return Timeline([begin + gap * at for at in range(count)], [tokens] * count)


def test_a_turn_is_timed_from_its_first_tokens_on() -> None:
    assert pooled_rate([Timeline([10.0, 10.5, 11.0], [16, 8, 4])]) == 12.0
    assert pooled_rate([Timeline([5.0], [16])]) is None
    assert pooled_rate([]) is None


def test_turns_asked_again_are_pooled_by_their_time() -> None:
    assert pooled_rate([Timeline([0.0, 1.0], [1, 10]), Timeline([5.0, 8.0], [1, 2])]) == 3.0


def test_a_stream_counts_between_its_own_arrivals() -> None:
    stream = steady(0.03, 0.1, 100)
    assert rate_within(stream, [(1.0, 2.0)]) == pytest.approx(10.0)
    assert rate_within(stream, [(1.0, 2.0), (4.04, 4.5)]) == pytest.approx(10.0)
    assert rate_within(steady(0.0, 0.1, 100, tokens=2.0), [(1.05, 1.36)]) == pytest.approx(20.0)


def test_a_window_with_one_arrival_or_none_counts_whole() -> None:
    stream = Timeline([1.0, 5.0], [3, 3])
    assert rate_within(stream, [(0.5, 2.5)]) == 1.5
    assert rate_within(stream, [(2.0, 4.0)]) == 0.0
    assert rate_within(stream, [(2.0, 4.0), (4.5, 5.5)]) == 1.0
    assert rate_within(stream, []) == 0.0


def test_the_total_counts_streams_that_stand_still() -> None:
    assert total_within([steady(0.0, 0.1, 50), Timeline([9.0], [1])], [(1.0, 3.05)]) == pytest.approx(10.0)


def test_the_usual_gap_lies_within_the_windows() -> None:
    stream = Timeline([0.0, 1.0, 1.1, 1.2, 1.5, 9.0], [1] * 6)
    assert usual_gap([stream], [(0.9, 2.0)]) == pytest.approx(0.1)
    assert usual_gap([stream], [(2.0, 3.0)]) is None


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [([1, 2, 3], [1, 2, 3], None), ([1, 2, 3], [1, 9, 3], 1), ([1, 2], [1, 2, 3], 2), ([1, 2], [], 0)],
)
def test_where_two_answers_part(one: list[int], other: list[int], at: int | None) -> None:
    assert first_difference(one, other) == at
    assert first_difference(other, one) == at
