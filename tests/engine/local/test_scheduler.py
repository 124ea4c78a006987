"""The scheduler over random arrivals: order, budgets, no starvation, everything finishes; no model involved."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.engine.local.scheduler import (
    BLOCK_TOKENS,
    PATIENCE,
    Demand,
    Limits,
    Step,
    blocks_for,
    fits,
    next_in_line,
    schedule,
)


@dataclass(slots=True, eq=False)
class Job(Demand):
    """A demand that knows when it arrives and how long it gets."""

    arrives: int = 0
    total: int = 0


@st.composite
def jobs(draw: st.DrawFn, most_tokens: int) -> list[Job]:
    """Random arrivals, in order of arrival."""
    shapes = draw(
        st.lists(
            st.tuples(
                st.integers(0, 60), st.integers(0, 2), st.integers(1, most_tokens - 1), st.integers(1, most_tokens)
            ),
            min_size=1,
            max_size=14,
        )
    )
    shapes.sort(key=lambda shape: shape[0])
    return [
        Job(number, rank, prompt, arrives=arrives, total=min(prompt + answer, most_tokens))
        for number, (arrives, rank, prompt, answer) in enumerate(shapes)
    ]


class Simulation:
    """Drives the scheduler as the loop does, with block counts instead of blocks."""

    def __init__(self, arrivals: list[Job], seats: int, blocks: int, limits: Limits) -> None:
        self.coming = list(arrivals)
        self.waiting: list[Job] = []
        self.seated: list[Job] = []
        self.seats, self.blocks, self.limits = seats, blocks, limits
        self.time = 0
        self.preemptions = 0

    @property
    def free(self) -> int:
        return self.blocks - sum(d.held for d in self.seated)

    def arrive(self) -> None:
        while self.coming and self.coming[0].arrives <= self.time:
            self.waiting.append(self.coming.pop(0))
        self.time += 1

    def admit(self) -> None:
        while self.waiting and len(self.seated) < self.seats:
            head = next_in_line(self.waiting)
            if not fits(head, self.seated, self.free):
                break
            self.waiting.remove(head)
            self.seated.append(head)
            for d in self.waiting:
                d.overtaken += d.number < head.number

    def plan(self) -> Step[Job]:
        while True:
            step = schedule(self.seated, self.limits, self.free)
            if step.preempt is None:
                return step
            victim = step.preempt
            self.preemptions += 1
            victim.computed = victim.held = 0
            victim.preempted += 1
            self.seated.remove(victim)
            self.waiting.append(victim)

    def apply(self, step: Step[Job]) -> None:
        for d in step.passed:
            d.overtaken += 1
        for d, rows in [*((d, 1) for d, _ in step.streams), *step.prompts]:
            d.overtaken = 0
            d.computed += rows
            d.held = max(d.held, blocks_for(d.computed))
            if d.computed == d.wanted:
                d.wanted += 1
                if d.wanted > d.total:
                    self.seated.remove(d)
        assert self.free >= 0


LIMITS = st.builds(Limits, rows=st.integers(8, 64), chunk=st.integers(1, 300))


@given(jobs(400), st.integers(1, 8), LIMITS, st.integers(blocks_for(400), 60))
@settings(max_examples=60, deadline=None)
def test_everything_finishes_within_the_budget(arrivals: list[Job], seats: int, limits: Limits, blocks: int) -> None:
    simulation = Simulation(arrivals, seats, blocks, limits)
    most_steps = 60 + sum(d.total for d in arrivals) * 40
    while simulation.coming or simulation.waiting or simulation.seated:
        simulation.arrive()
        simulation.admit()
        step = simulation.plan()
        assert step.rows <= limits.rows
        if step.streams:
            assert sum(rows for _, rows in step.prompts) <= limits.chunk
        assert {d for d, _ in step.streams} == {d for d in simulation.seated if d.wanted - d.computed == 1}
        assert step.rows > 0 or not simulation.seated
        simulation.apply(step)
        assert simulation.time < most_steps, "the sequences do not come to an end"


@given(jobs(2000), st.integers(1, 8), LIMITS)
@settings(max_examples=60, deadline=None)
def test_nobody_is_overtaken_for_long(arrivals: list[Job], seats: int, limits: Limits) -> None:
    """With room in the cache, work is conserved and PATIENCE bounds overtaking in the queue and in the seats."""
    simulation = Simulation(arrivals, seats, 10_000, limits)
    while simulation.coming or simulation.waiting or simulation.seated:
        simulation.arrive()
        simulation.admit()
        assert len(simulation.seated) == seats or not simulation.waiting, "a seat stays empty while someone waits"
        step = simulation.plan()
        lacking = sum(d.wanted - d.computed for d in simulation.seated)
        most = len(step.streams) + limits.chunk if step.streams else limits.rows
        assert step.rows == min(lacking, limits.rows, most), "rows stay empty while someone wants them"
        simulation.apply(step)
        assert all(d.overtaken <= PATIENCE for d in simulation.seated + simulation.waiting)
    assert simulation.preemptions == 0


def test_an_endless_flow_of_fast_prompts_does_not_starve_a_standard_one() -> None:
    arrivals = [Job(0, 0, 640, arrives=0, total=641)]
    arrivals += [Job(1 + i, 2, 128, arrives=i, total=129) for i in range(2000)]
    simulation = Simulation(arrivals, 4, 10_000, Limits(rows=256, chunk=128))
    while simulation.time == 0 or arrivals[0] in simulation.seated:
        simulation.arrive()
        simulation.admit()
        simulation.apply(simulation.plan())
    assert arrivals[0].wanted > arrivals[0].total
    assert simulation.time <= (PATIENCE + 1) * 640 // 128 + 1


def test_streams_advance_beside_a_long_prompt() -> None:
    stream, prompt = Demand(0, 0, 65, computed=64, held=2), Demand(1, 0, 5000)
    step = schedule([stream, prompt], Limits(rows=512, chunk=96), 1000)
    assert step.streams == [(stream, 1)]
    assert step.prompts == [(prompt, 96)]
    assert schedule([prompt], Limits(rows=512, chunk=96), 1000).prompts == [(prompt, 512)]


def test_higher_gears_and_older_prompts_go_first() -> None:
    demands = [Demand(0, 0, 50), Demand(1, 0, 50), Demand(2, 2, 50), Demand(3, 1, 50)]
    step = schedule(demands, Limits(rows=128, chunk=128), 1000)
    assert [(d.number, rows) for d, rows in step.prompts] == [(2, 50), (3, 50), (0, 28)]
    assert next_in_line(demands).number == 2
    demands[1].overtaken = PATIENCE
    assert next_in_line(demands).number == 1


def test_the_newest_of_the_lowest_gear_gives_up_its_blocks() -> None:
    full = [Demand(number, rank, 33, computed=32, held=1) for number, rank in enumerate([0, 0, 2, 0])]
    step = schedule(full, Limits(rows=128, chunk=128), 3)
    assert step.preempt is full[3]
    assert step.rows == 0
    assert schedule(full, Limits(rows=128, chunk=128), 4).preempt is None


def test_a_sequence_that_waits_for_anothers_blocks_takes_no_rows() -> None:
    demands = [Demand(0, 0, 100, computed=32, held=1), Demand(1, 0, 100, waits=True)]
    step = schedule(demands, Limits(rows=512, chunk=512), 100)
    assert step.prompts == [(demands[0], 68)]
    assert step.passed == []


@pytest.mark.parametrize(("free", "expected"), [(3, False), (4, True)])
def test_a_waiting_sequence_needs_room_for_its_prompt_and_for_the_growth_of_others(free: int, expected: bool) -> None:
    seated = [Demand(0, 0, BLOCK_TOKENS + 2, computed=BLOCK_TOKENS, held=1)]
    candidate = Demand(1, 0, 3 * BLOCK_TOKENS, shared=1)
    assert fits(candidate, seated, free) is expected
