"""The measured cost of a step: interpolation, how a chunk is chosen from it, and what the meter makes of noise."""

from __future__ import annotations

import math
import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gearshift.engine.local.cost import UNMEASURED, CostMeter, StepCost, rising

CURVE = StepCost(((1.0, 0.002), (64.0, 0.020), (256.0, 0.080)))


def test_the_curve_is_linear_between_points_and_goes_on_beyond() -> None:
    assert CURVE.seconds(1) == 0.002
    assert math.isclose(CURVE.seconds(160), 0.050)
    assert math.isclose(CURVE.seconds(512), 0.160, rel_tol=0.02)
    assert CURVE.seconds(0) == 0.0


def test_a_single_measured_point_does_not_make_rows_as_dear_as_steps() -> None:
    """Otherwise drafts would never be tried, and their rows never measured."""
    assert StepCost(((1.0, 0.002),)).seconds(16) < 4 * 0.002
    assert StepCost(((256.0, 0.08),)).seconds(1) < 0.01


def test_context_costs_by_the_position() -> None:
    cost = StepCost(CURVE.points, per_key=1e-6)
    assert math.isclose(cost.seconds(64, 5000), 0.025)


def test_the_chunk_is_the_largest_power_that_stays_within_the_time() -> None:
    assert CURVE.rows_within(0.085, least=32, most=512) == 256
    assert CURVE.rows_within(0.079, least=32, most=512) == 128
    assert CURVE.rows_within(0.000, least=32, most=512) == 32
    assert UNMEASURED.rows_within(0.1, least=32, most=256) == 256


def test_the_meter_follows_the_machine() -> None:
    """A slower machine makes all steps slower, those too that were measured before."""
    meter = CostMeter()
    for _ in range(100):
        meter.observe(1, 0.002)
        meter.observe(200, 0.060)
    assert math.isclose(meter.cost().seconds(1), 0.002)
    for _ in range(100):
        meter.observe(1, 0.008)
    assert math.isclose(meter.cost().seconds(1), 0.008, rel_tol=0.01)
    assert math.isclose(meter.cost().seconds(200), 0.240, rel_tol=0.01)


def test_the_meter_finds_the_curve_under_noise() -> None:
    """A third of the steps take up to four times as long; keys cost more than rows at long contexts."""
    rng = random.Random(5)
    true = StepCost(((1.0, 0.004), (16.0, 0.008), (64.0, 0.020)), per_key=5e-7)
    meter = CostMeter()
    for _ in range(4000):
        rows = rng.choice([1, 1, 2, 4, 8, 16, 33, 64])
        keys = rows * rng.randrange(10, 2000)
        seconds = true.seconds(rows, keys) * (rng.uniform(1, 4) if rng.random() < 0.33 else rng.uniform(1, 1.05))
        meter.observe(rows, seconds, keys)
    cost = meter.cost()
    for rows in (1, 2, 4, 8, 16, 33, 64):
        for context in (10, 2000):
            expected = true.seconds(rows, rows * context)
            assert abs(cost.seconds(rows, rows * context) / expected - 1) < 0.3, (rows, context)


def test_the_meter_begins_with_the_calibrated_curve() -> None:
    meter = CostMeter(CURVE)
    assert meter.cost() == CURVE
    for _ in range(50):
        meter.observe(1, 0.004)
    assert math.isclose(meter.cost().seconds(1), 0.004, rel_tol=0.01)
    assert meter.cost().seconds(256) >= 0.080


@given(st.lists(st.tuples(st.integers(1, 512), st.floats(1e-4, 10.0), st.integers(0, 10**6)), max_size=200))
def test_more_rows_never_take_less_time(steps: list[tuple[int, float, int]]) -> None:
    meter = CostMeter()
    for rows, seconds, keys in steps:
        meter.observe(rows, seconds, keys)
        predicted = [meter.cost().seconds(rows) for rows in range(1, 600, 7)]
        assert all(0 < a <= b * (1 + 1e-12) for a, b in pairwise(predicted))


def test_neighbours_that_disagree_get_their_mean() -> None:
    assert rising([(1, 1.0), (2, 3.0), (3, 2.0), (4, 4.0)]) == ((1, 1.0), (2, 2.5), (3, 2.5), (4, 4.0))
