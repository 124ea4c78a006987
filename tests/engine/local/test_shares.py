"""Shares over random loads: guarantees kept, nobody starved, rows within their budget, no step empty for nothing.

The simulator drives the scheduler as the engine does; the properties are looked at in every step.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gearshift.catalog import GEARS, Gear, GearName
from gearshift.engine.local.cost import StepCost, rising
from gearshift.engine.local.scheduler import (
    LEAST_CHUNK,
    MOST_FOR_PROMPTS,
    MOST_LEFT_OUT,
    PATIENCE,
    PROTECTED_AFTER,
    STRETCH,
    Balance,
    Demand,
    Limits,
    Step,
    schedule,
    seconds_of,
)
from gearshift.engine.local.scheduler.balance import AHEAD_STEPS, BEHIND_STEPS
from gearshift.plan import Load, Machine, Simulation, TracedTurn, simulate, synthetic
from gearshift.plan.simulate import Run

COST = StepCost(((1, 0.006), (16, 0.012), (32, 0.018), (64, 0.030), (512, 0.250)))
"""Much like that of a small model on two cores."""

NAMES: tuple[GearName, ...] = ("standard", "priority", "ultrafast")


@st.composite
def costs(draw: st.DrawFn) -> StepCost:
    """Machines on which rows together cost no more than apart."""
    seconds, points = draw(st.floats(0.001, 0.05)), list[tuple[float, float]]()
    least = seconds
    for rows in (1, 2, 8, 16, 64, 256, 512):
        points.append((rows, seconds))
        seconds += draw(st.floats(0.0, 0.3)) * least * rows
    return StepCost(rising(points), draw(st.sampled_from([0.0, 1e-7, 1e-6])))


TURNS = st.builds(
    TracedTurn,
    arrives_s=st.floats(0, 3),
    gear=st.sampled_from(["standard", "standard", "standard", "priority", "ultrafast"]),
    prompt=st.integers(1, 700),
    output=st.integers(1, 120),
    odds=st.floats(0, 1),
)
TRACES = st.lists(TURNS, min_size=1, max_size=14)
MACHINES = st.builds(
    Machine,
    cost=costs(),
    seats=st.integers(1, 8),
    blocks=st.sampled_from([30, 60, 10_000]),
    rows=st.integers(16, 512),
    stall_s=st.floats(0, 0.3),
)


@given(TRACES, MACHINES)
@settings(max_examples=120, deadline=None)
def test_every_turn_is_served_within_the_budget(trace: list[TracedTurn], machine: Machine) -> None:
    simulation = Simulation(trace, machine)
    most = 100 + sum(turn.prompt + 60 * turn.output for turn in trace) * 40
    for number, step in enumerate(simulation.steps()):
        assert 1 <= step.rows <= max(machine.rows, machine.seats), "work is conserved, and the budget kept"
        for run, rows in step.streams:
            assert 1 <= rows <= min(run.lookahead, 1 + run.drafts)
        assert number < most, "the turns do not come to an end"
    assert all(run.produced == run.turn.output for run in simulation.runs)
    assert len(simulation.runs) == len(trace)


@given(TRACES, MACHINES)
@settings(max_examples=120, deadline=None)
def test_no_stream_is_left_out_for_long(trace: list[TracedTurn], machine: Machine) -> None:
    """While blocks last, every stream of every gear advances at least once in MOST_LEFT_OUT + 1 steps."""
    simulation = Simulation(trace, replace(machine, blocks=10_000))
    idle: dict[int, int] = {}
    for step in simulation.steps():
        served = {run.number for run, _ in [*step.streams, *step.prompts]}
        streams = [run.number for run in simulation.seated if run.wanted - run.computed == 1]
        idle = {number: 0 if number in served else idle.get(number, 0) + 1 for number in streams}
        assert all(steps <= MOST_LEFT_OUT for steps in idle.values())


@given(TRACES, MACHINES)
@settings(max_examples=120, deadline=None)
def test_a_gear_gets_its_share_while_it_has_work(trace: list[TracedTurn], machine: Machine) -> None:
    """Over any stretch in which a gear has work, its rows alone would have cost at least its share of the time, less
    a window: what it was ahead before, and what it may be behind. Steps that the starvation bound forces are apart."""
    simulation = Simulation(trace, replace(machine, blocks=10_000))
    cost = simulation.machine.cost
    window = AHEAD_STEPS * cost.seconds(machine.seats) + BEHIND_STEPS * cost.seconds(max(machine.rows, machine.seats))
    lacks: dict[int, float] = {}
    left_out = 0
    for step in simulation.steps():
        grants = [*step.streams, *step.prompts]
        shares = {run.rank: run.share for run in simulation.seated if run.share}
        forced, left_out = left_out >= MOST_LEFT_OUT, simulation.balance.left_out
        for rank, share in shares.items():
            own = seconds_of([(run, rows) for run, rows in grants if run.rank == rank], cost)
            lack = share * seconds_of(grants, cost) - own
            lacks[rank] = max(0.0, lacks.get(rank, 0.0) + (0.0 if forced else lack))
            assert lacks[rank] <= window
        lacks = {rank: lack for rank, lack in lacks.items() if rank in shares}


def rates(fast_share: float, standard: int, odds: float = 0.8) -> tuple[float, float]:
    """Speed of an ultrafast stream beside standard ones, and alone."""
    gears: dict[GearName, Gear] = {**GEARS, "ultrafast": replace(GEARS["ultrafast"], share=fast_share)}
    speeds: list[float] = []
    for others in (standard, 0):
        loads = [Load("ultrafast", 1, 32, 100_000, odds), Load("standard", others, 32, 100_000)]
        simulation = Simulation(synthetic(loads), Machine(COST, blocks=10**6), gears)
        for _ in simulation.steps():
            if simulation.now > 30:
                break
        rate = next(run for run in simulation.runs if run.turn.gear == "ultrafast").rate
        assert rate is not None
        speeds.append(rate)
    return speeds[0], speeds[1]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("standard", [4, 16, 48])
def test_a_share_is_the_part_of_its_speed_alone_that_a_stream_keeps(share: float, standard: int) -> None:
    beside, alone = rates(share, standard)
    assert beside >= 0.92 * share * alone


@given(TRACES, MACHINES)
@settings(max_examples=60, deadline=None)
def test_the_same_question_has_the_same_answer(trace: list[TracedTurn], machine: Machine) -> None:
    """The function changes nothing that it is given."""
    simulation = Simulation(trace, machine)
    limits = Limits(machine.rows + machine.seats, 64)
    for step in simulation.steps():
        del step
        before = [copy(run) for run in simulation.seated]
        balance = simulation.balance
        answers = [
            schedule(seated, limits, simulation.free_blocks, machine.cost, balance)
            for seated in (simulation.seated, simulation.seated, before)
        ]
        assert [plain(answer) for answer in answers] == [plain(answers[0])] * 3
        for run, old in zip(simulation.seated, before, strict=True):
            assert all(getattr(run, name) == getattr(old, name) for name in Demand.__slots__)


def plain(step: Step[Run]) -> object:
    return (
        [(run.number, rows) for run, rows in step.streams],
        [(run.number, rows) for run, rows in step.prompts],
        [run.number for run in step.passed],
        step.balance,
        step.preempt and step.preempt.number,
    )


def stream(number: int, rank: int, share: float, **more: int | float) -> Demand:
    return Demand(number, rank, 65, computed=64, held=3, share=share, **more)  # pyright: ignore[reportArgumentType]


FAST = {"lookahead": 16, "drafts": 15, "odds": 0.8}


def test_a_gear_that_is_behind_has_the_step_for_itself_and_those_above() -> None:
    low, middle, high = stream(0, 0, 0.0), stream(1, 1, 0.25), stream(2, 2, 0.6)
    limits = Limits(512, 64)
    behind = schedule([low, middle, high], limits, 100, COST, Balance(((1, 0.01), (2, -0.01)), 3))
    assert [d.number for d, _ in behind.streams] == [1, 2]
    assert behind.balance.left_out == 4
    both = schedule([low, middle, high], limits, 100, COST, Balance(((1, 0.01), (2, 0.01)), 3))
    assert [d.number for d, _ in both.streams] == [2]
    bound = schedule([low, middle, high], limits, 100, COST, Balance(((1, 0.01), (2, 0.01)), MOST_LEFT_OUT))
    assert [d.number for d, _ in bound.streams] == [0, 1, 2]
    assert bound.balance.left_out == 0


def test_a_gear_without_work_begins_anew() -> None:
    low, high = stream(0, 0, 0.0), stream(2, 2, 0.6)
    gone = schedule([low], Limits(512, 64), 100, COST, Balance(((2, 5.0),), 7)).balance
    assert gone == Balance()
    assert len(schedule([low, high], Limits(512, 64), 100, COST, gone).streams) == 2


def test_a_fast_prompt_is_computed_alone_but_not_for_ever() -> None:
    low, high = stream(0, 0, 0.0), Demand(1, 2, 100_000, share=0.6)
    balance, steps = Balance(), list[Step[Demand]]()
    for _ in range(2 * (MOST_FOR_PROMPTS + 1)):
        steps.append(schedule([low, high], Limits(512, 64), 10_000, COST, balance))
        balance = steps[-1].balance
    assert [[(d.number, rows) for d, rows in [*s.streams, *s.prompts]] for s in steps] == 2 * (
        [[(1, 512)]] * MOST_FOR_PROMPTS + [[(0, 1), (1, 64)]]
    )


def test_nobody_saves_up() -> None:
    """A gear that had far more than its share for long is protected again within a few steps when others come."""
    fast = stream(0, 2, 0.6, **FAST)
    balance = Balance()
    for _ in range(500):
        balance = schedule([fast, stream(1, 0, 0.0)], Limits(512, 64), 1000, COST, balance).balance
    crowd = [fast, *(stream(number, 0, 0.0) for number in range(1, 60))]
    for steps in range(10):
        step = schedule(crowd, Limits(512, 64), 1000, COST, balance)
        balance = step.balance
        if len(step.streams) == 1:
            assert 0 < steps < 5
            return
    raise AssertionError("the fast stream is not protected")


def test_an_overtaken_prompt_has_rows_beside_an_endless_flow_of_fast_ones() -> None:
    fast, slow = Demand(0, 2, 100_000, share=0.6), Demand(1, 0, 100_000, overtaken=PATIENCE)
    step = schedule([fast, slow], Limits(512, 64), 10_000, COST, Balance(left_out=MOST_FOR_PROMPTS))
    assert step.prompts == [(fast, 256), (slow, 256)]


def test_the_bound_holds_where_a_share_alone_would_starve() -> None:
    """A step with everybody costs a hundred steps of the fast stream alone, which would want them back."""
    cost = StepCost(((1, 0.001), (2, 0.1), (512, 0.2)))
    streams = [stream(0, 0, 0.0), stream(1, 2, 0.9)]
    balance, gaps, gap = Balance(), list[int](), 0
    for _ in range(200):
        step = schedule(streams, Limits(512, 64), 100, cost, balance)
        balance = step.balance
        gap = 0 if len(step.streams) == 2 else gap + 1
        gaps.append(gap)
    assert max(gaps) == MOST_LEFT_OUT == 32


def test_a_long_standard_prompt_stalls_a_fast_stream_by_no_more_than_one_step() -> None:
    """It advances in every step, and a step with the prompt is not much longer than one of its own."""
    fast, prompt = stream(0, 2, 0.6, **FAST), Demand(1, 0, 50_000)
    balance = Balance()
    own = schedule([fast], Limits(512, 256), 10_000, COST)
    for _ in range(60):
        step = schedule([fast, prompt], Limits(512, 256), 10_000, COST, balance)
        assert [d for d, _ in step.streams] == [fast]
        rows = sum(rows for _, rows in step.prompts)
        assert rows <= LEAST_CHUNK or COST.seconds(rows) <= STRETCH * COST.seconds(16)
        if rows:
            assert balance.lag(2) <= 0
        prompt.computed += rows
        prompt.held = -(-prompt.computed // 32)
        balance = step.balance
    assert own.rows > 1
    assert prompt.computed > 0


@given(TRACES, MACHINES, st.integers(0, 150))
@settings(max_examples=120, deadline=None)
def test_a_waiting_fast_turn_has_rows_in_the_next_step(trace: list[TracedTurn], machine: Machine, when: int) -> None:
    """Whatever standard turns are seated: seats and blocks are taken from them, if need be."""
    simulation = Simulation([structs.replace(turn, gear="standard") for turn in trace], machine)
    fast = TracedTurn(0.0, "ultrafast", 100, 5, odds=0.5)
    steps = simulation.steps()
    for number, _ in enumerate(steps):
        if number == when:
            assert not any(run.preempted >= PROTECTED_AFTER for run in simulation.seated)
            simulation.submit(fast)
            step = next(steps)
            assert any(run.turn is fast for run, _ in step.prompts)
            break


def test_higher_gears_have_faster_streams() -> None:
    loads = [Load(name, streams, 64, 10_000, 0.6) for name, streams in zip(NAMES, (8, 4, 1), strict=True)]
    gears = simulate(synthetic(loads), Machine(COST), until_s=30).gears
    speed = [gears[name].stream_rate or 0.0 for name in NAMES]
    assert 0 < 1.5 * speed[0] < speed[1]
    assert 1.5 * speed[1] < speed[2]
