"""The simulator: it adds up, it repeats, and it does what the arithmetic of a few cases says."""

from __future__ import annotations

import math

import pytest

from gearshift.engine.local.cost import StepCost
from gearshift.plan import Load, Machine, TracedTurn, simulate, synthetic
from gearshift.plan.frontier import frontier, with_shares

COST = StepCost(((1, 0.006), (16, 0.012), (32, 0.018), (64, 0.030), (512, 0.250)))


def test_one_stream_without_drafts_takes_a_step_for_a_token() -> None:
    result = simulate([TracedTurn(2.0, "standard", 1, 100)], Machine(COST))
    standard = result.gears["standard"]
    assert result.steps == 100
    assert standard.tokens == 100
    assert math.isclose(standard.stream_rate or 0, 1 / 0.006)
    assert math.isclose(standard.first_token_s or 0, 0.006)
    assert math.isclose(result.seconds, 2.0 + 100 * 0.006)
    assert math.isclose(result.tokens_per_s, 1 / 0.006)


def test_what_is_cached_is_not_computed() -> None:
    cold = simulate([TracedTurn(0.0, "standard", 401, 1)], Machine(COST))
    warm = simulate([TracedTurn(0.0, "standard", 401, 1, cached=400)], Machine(COST))
    assert cold.busy_s == COST.seconds(401)
    assert warm.busy_s == COST.seconds(1)


def test_time_passes_by_the_wall_while_the_scheduler_believes_the_kernel() -> None:
    wall = StepCost(tuple((rows, seconds + 0.001) for rows, seconds in COST.points))
    result = simulate([TracedTurn(0.0, "standard", 1, 100)], Machine(COST, wall))
    assert math.isclose(result.seconds, 100 * 0.007)


def test_drafts_are_kept_as_recorded() -> None:
    """Three of four tokens that could be kept each time: a step brings four, whatever rows are spent beyond."""
    result = simulate([TracedTurn(0.0, "ultrafast", 1, 401, kept=(3,))], Machine(StepCost(((1, 0.01), (64, 0.01)))))
    assert result.steps == pytest.approx(1 + 400 / 4, abs=2)


def test_a_session_goes_on_when_the_turn_before_has_ended() -> None:
    trace = [TracedTurn(0.0, "standard", 1, 10), TracedTurn(1.5, "standard", 1, 10, after=0)]
    result = simulate(trace, Machine(COST))
    assert math.isclose(result.seconds, 1.5 + 20 * 0.006)
    assert math.isclose(result.busy_s, 20 * 0.006)


def test_the_same_seed_repeats_and_another_one_differs() -> None:
    trace = synthetic([Load("standard", 4), Load("ultrafast", 2)], turns=2)
    results = [simulate(trace, Machine(COST), seed=seed) for seed in (1, 1, 2)]
    assert results[0] == results[1] != results[2]


def test_a_ratio_needs_both_gears() -> None:
    assert simulate(synthetic([Load("standard", 2)]), Machine(COST)).ratio() is None
    assert (simulate(synthetic([Load("standard", 2), Load("ultrafast", 1)]), Machine(COST)).ratio() or 0) > 1.5


def test_the_frontier_trades_speed_for_throughput() -> None:
    trace = synthetic([Load("standard", 24, 32, 5000), Load("ultrafast", 1, 32, 5000, odds=0.5)])
    points = list(frontier(trace, Machine(COST, blocks=10**5), until_s=20, shares=(0.1, 0.5, 0.8)))
    speeds = [point.result.gears["ultrafast"].stream_rate or 0 for point in points]
    totals = [point.result.tokens_per_s for point in points]
    assert speeds == sorted(speeds)
    assert totals == sorted(totals, reverse=True)
    assert speeds[2] > 1.3 * speeds[0]


def test_shares_that_promise_too_much_are_refused() -> None:
    assert with_shares({"ultrafast": 0.5})["ultrafast"].share == 0.5
    with pytest.raises(ValueError, match=r"together 0\.95 at most, but are standard=0, priority=0\.25, ultrafast=0\.8"):
        with_shares({"ultrafast": 0.8})


def test_a_turn_longer_than_the_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="give the machine at least 11"):
        simulate([TracedTurn(0.0, "standard", 300, 30)], Machine(COST, blocks=10))
