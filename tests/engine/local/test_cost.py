"""The measured cost of a step: interpolation, and how a chunk is chosen from it."""

from __future__ import annotations

import math

from gearshift.engine.local.cost import CostMeter, StepCost


def test_the_curve_is_linear_between_points_and_proportional_beyond() -> None:
    cost = StepCost(((1.0, 0.002), (64.0, 0.020), (256.0, 0.080)))
    assert cost.seconds(1) == 0.002
    assert math.isclose(cost.seconds(160), 0.050)
    assert math.isclose(cost.seconds(512), 0.160)


def test_the_chunk_is_the_largest_power_that_stays_within_the_time() -> None:
    cost = StepCost(((1.0, 0.002), (64.0, 0.020), (256.0, 0.080)))
    assert cost.rows_within(0.085, least=32, most=512) == 256
    assert cost.rows_within(0.079, least=32, most=512) == 128
    assert cost.rows_within(0.000, least=32, most=512) == 32
    assert StepCost(()).rows_within(0.1, least=32, most=256) == 256


def test_the_meter_follows_the_machine() -> None:
    meter = CostMeter()
    for _ in range(100):
        meter.observe(1, 0.002)
        meter.observe(200, 0.060)
    assert math.isclose(meter.cost().seconds(1), 0.002)
    for _ in range(100):
        meter.observe(1, 0.008)
    assert math.isclose(meter.cost().seconds(1), 0.008, rel_tol=0.01)
    assert math.isclose(meter.cost().seconds(200), 0.060)
