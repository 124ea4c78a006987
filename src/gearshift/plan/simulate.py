"""A load on a machine, step by step in virtual time: the engine's own scheduler decides, the measured cost of steps
makes the time pass. No model is involved; how far drafts are kept is drawn or comes from the trace.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from gearshift.catalog import GEARS, Gear, GearName
from gearshift.engine.local.cost import StepCost
from gearshift.engine.local.scheduler import (
    LEAST_CHUNK,
    Balance,
    Demand,
    Limits,
    Step,
    blocks_for,
    displaced,
    fits,
    next_to_sit,
    schedule,
)
from gearshift.plan.trace import TracedTurn

_FIRST_ODDS = 0.5
"""What a drafter believes of itself before it was ever judged."""
_LEARNING = 0.1
"""Weight of the newest judgement in what a drafter believes of itself."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the load runs on.

    Attributes:
        cost: what the scheduler believes of steps: their duration in the kernel.
        wall: what steps really take, with everything around the kernel; None when that is nothing.
        seats: sequences that may run at once.
        blocks: cache blocks.
        rows: most rows of a step.
        stall_s: while streams run, prompts are cut so that a step takes about this long at most.
    """

    cost: StepCost
    wall: StepCost | None = None
    seats: int = 64
    blocks: int = 8192
    rows: int = 512
    stall_s: float = 0.1


@dataclass(slots=True, eq=False)
class Run(Demand):
    """A turn while it is simulated.

    Attributes:
        index: of the turn in the trace.
        arrived_s, first_s, last_s: when it came, and had its first and its last token so far.
        produced: tokens of its answer so far.
        done: it is complete.
    """

    index: int = field(kw_only=True)
    turn: TracedTurn = field(kw_only=True)
    arrived_s: float = field(kw_only=True)
    first_s: float | None = field(default=None, kw_only=True)
    last_s: float = field(default=0.0, kw_only=True)
    produced: int = field(default=0, kw_only=True)
    done: bool = field(default=False, kw_only=True)

    @property
    def rate(self) -> float | None:
        """Tokens per second after the first, or None when there were none."""
        if self.first_s is None or self.last_s <= self.first_s:
            return None
        return (self.produced - 1) / (self.last_s - self.first_s)


@dataclass(frozen=True, slots=True)
class GearResult:
    """What one gear got.

    Attributes:
        turns, tokens: that were served, unfinished ones counted.
        stream_rate: tokens per second of a stream after its first token; median over the turns, None without any.
        first_token_s: from arrival to the first token; median, None without any.
        slow_first_token_s: the same at the 95th percentile.
        credit: part of the time in which the gear had work that its rows alone would have taken.
    """

    turns: int
    tokens: int
    stream_rate: float | None
    first_token_s: float | None
    slow_first_token_s: float | None
    credit: float


@dataclass(frozen=True, slots=True)
class Result:
    """What came out.

    Attributes:
        seconds: virtual time from the first arrival to the end.
        busy_s: of it, time in steps.
        tokens_per_s: tokens of all answers per busy second.
        rows_per_step: mean.
        preempted: how often a sequence lost its blocks.
    """

    gears: dict[GearName, GearResult]
    seconds: float
    busy_s: float
    steps: int
    tokens_per_s: float
    rows_per_step: float
    preempted: int

    def ratio(self, fast: GearName = "ultrafast", slow: GearName = "standard") -> float | None:
        """How many times as fast a stream of one gear is as one of another; None when one of them has no rate."""
        rates = [self.gears[gear].stream_rate if gear in self.gears else None for gear in (fast, slow)]
        return rates[0] / rates[1] if rates[0] and rates[1] else None


def simulate(
    trace: Sequence[TracedTurn],
    machine: Machine,
    gears: Mapping[GearName, Gear] = GEARS,
    seed: int = 0,
    until_s: float | None = None,
) -> Result:
    """Run a trace to its end, or to `until_s`."""
    simulation = Simulation(trace, machine, gears, seed)
    for _ in simulation.steps():
        if until_s is not None and simulation.now >= until_s:
            break
    return simulation.result()


class Simulation:
    """A machine in virtual time. `steps` drives it and may be left at any step."""

    def __init__(
        self, trace: Sequence[TracedTurn], machine: Machine, gears: Mapping[GearName, Gear] = GEARS, seed: int = 0
    ) -> None:
        self.machine = machine
        self.now = 0.0
        self.balance = Balance()
        self.waiting: list[Run] = []
        self.seated: list[Run] = []
        self.runs: list[Run] = []
        self.preempted = 0
        self._gears = gears
        self._rng = random.Random(seed)
        self._limits = Limits(
            max(machine.rows, machine.seats), machine.cost.rows_within(machine.stall_s, LEAST_CHUNK, machine.rows)
        )
        self._gear_seats = {gear.rank: gear.seats for gear in gears.values()}
        self._coming = sorted(
            ((turn.arrives_s, index, turn) for index, turn in enumerate(trace) if turn.after is None),
            key=lambda entry: entry[:2],
        )
        self._followers: dict[int, list[tuple[int, TracedTurn]]] = {}
        for index, turn in enumerate(trace):
            if turn.after is not None:
                self._followers.setdefault(turn.after, []).append((index, turn))
        longest = max((turn.prompt + turn.output for turn in trace), default=1)
        if blocks_for(longest) > machine.blocks:
            raise ValueError(
                f"a turn of {longest} tokens does not fit into {machine.blocks} cache blocks; give the machine at "
                f"least {blocks_for(longest)}"
            )
        self._steps = self._rows = 0
        self._busy_s = 0.0
        self._gear_s: dict[int, float] = {}
        self._credit: dict[int, float] = {}

    @property
    def free_blocks(self) -> int:
        """Cache blocks that nobody holds."""
        return self.machine.blocks - sum(run.held for run in self.seated)

    def submit(self, turn: TracedTurn) -> None:
        """One turn more, now."""
        self._arrives(self.now, len(self.runs), turn)

    def steps(self) -> Iterator[Step[Run]]:
        """Yields every step when it is decided; what it brings is seen when the next one is asked for."""
        while self._coming or self.waiting or self.seated:
            if not self.waiting and not self.seated:
                self.now = max(self.now, self._coming[0][0])
            self._arrive()
            self._admit()
            step = self._decide()
            yield step
            self._pass_time(step)
            self._commit(step)

    def result(self) -> Result:
        """What came out so far."""
        gears: dict[GearName, GearResult] = {}
        for name in self._gears:
            if runs := [run for run in self.runs if run.turn.gear == name]:
                gears[name] = self._gear_result(name, runs)
        return Result(
            gears,
            seconds=self.now,
            busy_s=self._busy_s,
            steps=self._steps,
            tokens_per_s=sum(r.produced for r in self.runs) / self._busy_s if self._busy_s else 0.0,
            rows_per_step=self._rows / self._steps if self._steps else 0.0,
            preempted=self.preempted,
        )

    def _gear_result(self, name: GearName, runs: Sequence[Run]) -> GearResult:
        rank = self._gears[name].rank
        rates = [r.rate for r in runs if r.rate is not None]
        firsts = sorted(r.first_s - r.arrived_s for r in runs if r.first_s is not None)
        return GearResult(
            turns=len(runs),
            tokens=sum(r.produced for r in runs),
            stream_rate=median(rates) if rates else None,
            first_token_s=median(firsts) if firsts else None,
            slow_first_token_s=firsts[min(len(firsts) - 1, int(0.95 * len(firsts)))] if firsts else None,
            credit=self._credit.get(rank, 0.0) / self._gear_s[rank] if self._gear_s.get(rank) else 0.0,
        )

    # --- what the lane does ---

    def _arrive(self) -> None:
        while self._coming and self._coming[0][0] <= self.now:
            self._arrives(*self._coming.pop(0))

    def _arrives(self, at: float, index: int, turn: TracedTurn) -> None:
        gear = self._gears[turn.gear]
        run = Run(
            len(self.runs),
            gear.rank,
            turn.prompt,
            lookahead=gear.lookahead,
            share=gear.share,
            weight=gear.price,
            index=index,
            turn=turn,
            arrived_s=at,
        )
        self.runs.append(run)
        self.waiting.append(run)

    def _admit(self) -> None:
        while self.waiting:
            free_seats = self.machine.seats - len(self.seated)
            head = next_to_sit(self.waiting, self.seated, free_seats, self._gear_seats)
            if head is None:
                return
            if free_seats <= 0 or not fits(head, self.seated, self.free_blocks):
                other = displaced(self.seated, head, free_seats, self.free_blocks)
                if other is None:
                    return
                self._preempt(other)
                continue
            self.waiting.remove(head)
            self.seated.append(head)
            head.computed = head.turn.cached
            head.held = blocks_for(head.computed)
            for run in self.waiting:
                run.overtaken += run.number < head.number

    def _decide(self) -> Step[Run]:
        for run in self.seated:
            if run.wanted - run.computed == 1:
                self._draft(run)
        while True:
            step = schedule(self.seated, self._limits, self.free_blocks, self.machine.cost, self.balance)
            self.balance = step.balance
            if step.preempt is None:
                return step
            self._preempt(step.preempt)

    def _preempt(self, run: Run) -> None:
        self.preempted += 1
        run.preempted += 1
        run.computed = run.held = 0
        self.seated.remove(run)
        self.waiting.append(run)

    def _draft(self, run: Run) -> None:
        """As many drafts as its gear may use; a recorded turn's drafter learns what they are worth."""
        run.drafts = max(0, min(run.lookahead, run.turn.output - run.produced) - 1)
        if not run.turn.kept:
            run.odds = run.turn.odds
        elif run.odds == 0.0:
            run.odds = _FIRST_ODDS

    # --- what the kernel does ---

    def _pass_time(self, step: Step[Run]) -> None:
        seconds = (self.machine.wall or self.machine.cost).seconds(step.rows, step.keys)
        grants = [*step.streams, *step.prompts]
        for rank in {run.rank for run in self.seated}:
            own = Step([(run, rows) for run, rows in grants if run.rank == rank])
            self._credit[rank] = self._credit.get(rank, 0.0) + self.machine.cost.seconds(own.rows, own.keys)
            self._gear_s[rank] = self._gear_s.get(rank, 0.0) + self.machine.cost.seconds(step.rows, step.keys)
        self.now += seconds
        self._busy_s += seconds
        self._steps += 1
        self._rows += step.rows

    def _commit(self, step: Step[Run]) -> None:
        for run in step.passed:
            run.overtaken += 1
        for run, rows in step.streams:
            run.held = max(run.held, blocks_for(run.computed + rows))
            self._produce(run, 1 + self._kept(run, rows - 1))
        for run, rows in step.prompts:
            run.overtaken = 0
            run.computed += rows
            run.held = max(run.held, blocks_for(run.computed))
            if run.computed == run.wanted:
                run.computed -= 1
                self._produce(run, 1)

    def _kept(self, run: Run, drafts: int) -> int:
        """How many of its drafts a stream keeps."""
        profile = run.turn.kept
        if profile:
            kept = min(drafts, profile[run.produced % len(profile)])
            if drafts:
                judged = min(drafts, kept + 1)
                run.odds += _LEARNING * (kept / judged - run.odds)
            return kept
        kept = 0
        while kept < drafts and self._rng.random() < run.turn.odds:
            kept += 1
        return kept

    def _produce(self, run: Run, tokens: int) -> None:
        run.computed += tokens
        run.wanted += tokens
        run.produced += tokens
        run.last_s = self.now
        if run.first_s is None:
            run.first_s = self.now
        if run.produced >= run.turn.output:
            run.done = True
            self.seated.remove(run)
            for index, turn in self._followers.get(run.index, ()):
                self._coming.append((self.now + turn.arrives_s, index, turn))
            self._coming.sort(key=lambda entry: entry[:2])
