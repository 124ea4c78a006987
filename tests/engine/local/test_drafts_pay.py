"""How many rows go to drafts: the most expected tokens per second, never more than there is room for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.catalog import GEARS, Gear, GearName
from gearshift.engine.local.cost import StepCost
from gearshift.engine.local.scheduler import Balance, Demand, Limits, schedule
from gearshift.plan import Load, Machine, Simulation, synthetic

FLAT = StepCost(((1, 0.010), (64, 0.011), (512, 0.1)))
"""Rows cost next to nothing, as on a large accelerator."""
STEEP = StepCost(((1, 0.003), (4, 0.006), (8, 0.009), (16, 0.016), (32, 0.023), (64, 0.042), (512, 0.3)))
"""A processor without a matrix unit."""


def stream(number: int, odds: float, drafts: int = 15, lookahead: int = 16, weight: float = 1.0) -> Demand:
    return Demand(number, 0, 65, computed=64, held=3, lookahead=lookahead, drafts=drafts, odds=odds, weight=weight)


def rows_of(streams: list[Demand], cost: StepCost, rows: int = 512, blocks: int = 1000) -> list[int]:
    return [rows for _, rows in schedule(streams, Limits(rows, 64), blocks, cost).streams]


def expected(odds: float, rows: int) -> float:
    """Tokens that a stream gets on average from a step with so many rows."""
    return sum(odds**i for i in range(rows))


@pytest.mark.parametrize("cost", [FLAT, STEEP])
@pytest.mark.parametrize("odds", [0.01, 0.3, 0.6, 0.8, 0.95])
def test_alone_a_stream_takes_the_rows_that_bring_the_most_per_second(cost: StepCost, odds: float) -> None:
    best = max(range(1, 17), key=lambda rows: expected(odds, rows) / cost.seconds(rows))
    assert rows_of([stream(0, odds)], cost) == [best]


def test_hopeless_drafts_get_no_rows() -> None:
    assert rows_of([stream(0, 0.0)], FLAT) == [1]
    assert rows_of([stream(0, 0.02)], STEEP) == [1]
    assert rows_of([stream(i, 0.05) for i in range(64)], STEEP) == [1] * 64


def test_certain_drafts_get_all_that_the_gear_allows() -> None:
    assert rows_of([stream(0, 1.0, drafts=15, lookahead=4)], FLAT) == [4]
    assert rows_of([stream(0, 1.0, drafts=2)], FLAT) == [3]


def test_better_drafts_go_first_and_dearer_streams() -> None:
    assert rows_of([stream(0, 0.5), stream(1, 0.9)], FLAT, rows=8)[1] > 4
    alike = rows_of([stream(0, 0.7), stream(1, 0.7, weight=6.0)], STEEP)
    assert alike[0] < alike[1]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 15), st.integers(1, 16)), min_size=1, max_size=20),
    st.sampled_from([FLAT, STEEP]),
    st.integers(20, 200),
)
def test_drafts_bring_more_per_second_than_none(
    shapes: list[tuple[float, int, int]], cost: StepCost, rows: int
) -> None:
    streams = [stream(i, odds, drafts, lookahead) for i, (odds, drafts, lookahead) in enumerate(shapes)]
    granted = rows_of(streams, cost, rows)
    assert sum(granted) <= rows
    tokens = sum(expected(d.odds, n) for d, n in zip(streams, granted, strict=True))
    never = len(streams) / cost.seconds(len(streams))
    assert tokens / cost.seconds(sum(granted)) >= never * (1 - 1e-9)


@pytest.mark.parametrize(("free", "rows"), [(0, 1), (1, 1), (2, 16)])
def test_drafts_take_no_block_that_a_stream_left_out_needs_next(free: int, rows: int) -> None:
    """The fast stream has room for one row in its last block, the standard one for none."""
    fast = Demand(0, 2, 64, computed=63, held=2, share=0.6, lookahead=16, drafts=15, odds=0.98)
    standard = Demand(1, 0, 65, computed=64, held=2)
    step = schedule([fast, standard], Limits(512, 64), free, FLAT, Balance(((2, 1.0),)))
    assert step.streams == [(fast, rows)]


def test_drafts_are_cut_to_the_blocks_that_are_left() -> None:
    streams = [Demand(i, 0, 64, computed=63, held=2, lookahead=16, drafts=15, odds=0.98) for i in range(3)]
    assert rows_of(streams, FLAT, blocks=1) == [16, 1, 1]


@pytest.mark.parametrize("cost", [FLAT, STEEP])
@pytest.mark.parametrize("odds", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("streams", [1, 16, 64])
def test_drafts_for_all_never_cost_throughput(cost: StepCost, odds: float, streams: int) -> None:
    """An operator may give every gear a lookahead: at any load all together get 95% of what they get without."""
    throughput: list[float] = []
    for lookahead in (1, 16):
        gears: dict[GearName, Gear] = {**GEARS, "standard": replace(GEARS["standard"], lookahead=lookahead)}
        trace = synthetic([Load("standard", streams, 32, 10_000, odds)])
        simulation = Simulation(trace, Machine(cost, blocks=10**6), gears)
        for number, _ in enumerate(simulation.steps()):
            if number == 150:
                break
        throughput.append(simulation.result().tokens_per_s)
    assert throughput[1] >= 0.95 * throughput[0]
    if streams == 1 and odds == 0.8:
        assert throughput[1] > 1.2 * throughput[0], "and one stream alone is much faster"


def test_beside_many_others_a_fast_stream_drafts_less_than_alone() -> None:
    fast = stream(99, 0.7, weight=6.0)
    alone = rows_of([fast], FLAT)[0]
    beside = rows_of([*(stream(i, 0.0) for i in range(63)), fast], STEEP)[-1]
    assert 1 < beside < alone


def test_prompts_and_drafts_share_the_rows() -> None:
    streams = [stream(i, 0.98) for i in range(8)]
    step = schedule([*streams, Demand(10, 0, 200)], Limits(64, 64), 10_000, FLAT)
    assert step.rows == 64
    assert [rows for _, rows in step.prompts] == [28], "half of what the first row of every stream leaves"
