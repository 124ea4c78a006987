"""Measuring turns on an engine in this process: idle, beside the load, and one after the other beside the load.

Everything measured is kept as a slice with a probe before and after it, when nothing else runs. Every answer is
compared with the one that standard gave without drafts; a difference ends the run.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from benchmarks.engine.probe import Probe
from benchmarks.engine.samples import Slice
from benchmarks.engine.worker import Worker
from benchmarks.gears.answers import KNOWN, Answer, ask, greedy, new_scope, work_values
from benchmarks.gears.background import Background
from benchmarks.gears.loops import is_loop
from benchmarks.gears.rates import first_difference, pooled_rate, rate_within, total_within, usual_gap
from benchmarks.gears.turns import CodingTurn, Kind
from gearshift.caller import Caller
from gearshift.catalog import GearName
from gearshift.conversation import RawText
from gearshift.engine.local.load import EngineOptions, OpenModel, serve
from gearshift.engine.protocol import Sampling

LEAST_TOKENS = 16
"""A shorter answer has no rate."""
LEAST_S, MOST_REPEATS = 0.6, 3
"""A turn is asked again within its slice until its output took so long together, or so often."""
ALONE_S = 0.7
"""How long the load runs by itself before and after a turn beside it."""
_TELLING: tuple[Kind, ...] = ("copy", "explain", "extract", "hints", "rename", "fix")


class DifferentAnswer(Exception):
    """Two gears gave different answers to the same turn. Nothing else matters then.

    Attributes:
        data: the slices measured so far.
    """

    data: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is measured.

    Attributes:
        rounds: passes over all turns, alternately forward and backward.
        load: streams beside a measured turn.
        per_kind: turns of each kind at most.
    """

    quick: bool
    rounds: int
    load: int
    kinds: Sequence[Kind]
    per_kind: int
    threads: int


@dataclass(slots=True)
class Collected:
    """What one model's run brought, whichever engine it came from.

    Attributes:
        turns: all turns by name, in order.
        expected: the answers of standard without drafts, by turn.
        clean: turns that count, the measured ones.
        looped, short: turns whose answer is a loop, or too short to have a rate.
    """

    turns: dict[str, CodingTurn]
    slices: list[Slice] = field(default_factory=list[Slice])
    expected: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    clean: list[str] = field(default_factory=list[str])
    looped: list[str] = field(default_factory=list[str])
    short: list[str] = field(default_factory=list[str])
    compared: int = 0

    def number(self, name: str) -> int:
        """A turn's place among all turns; slices are paired by it."""
        return list(self.turns).index(name)

    def one_of_each_kind(self, most: int = 1) -> list[str]:
        """The first clean turns of every kind."""
        return first_of_each(self.clean, self.turns, most)

    def sort_out(self, most: int) -> None:
        """Which turns count, by their expected answers."""
        self.looped = [name for name, ids in self.expected.items() if is_loop(ids)]
        self.short = [n for n, ids in self.expected.items() if len(ids) < LEAST_TOKENS and n not in self.looped]
        fit = [n for n in self.expected if n not in self.looped and n not in self.short]
        self.clean = first_of_each(fit, self.turns, most)

    def check(self, name: str, ids: Sequence[int], where: str) -> None:
        """Raises DifferentAnswer."""
        self.compared += 1
        at = first_difference(self.expected[name], ids)
        if at is not None:
            raise DifferentAnswer(
                f"{name}, {where}: token {at} is {ids[at : at + 1]}, but {self.expected[name][at : at + 1]} in "
                f"standard without drafts ({len(ids)} tokens against {len(self.expected[name])})"
            )


def first_of_each(names: Sequence[str], turns: Mapping[str, CodingTurn], most: int) -> list[str]:
    """The first so many turns of each kind."""
    taken: dict[str, list[str]] = {}
    for name in names:
        taken.setdefault(turns[name].kind, []).append(name)
    return [name for of_kind in taken.values() for name in of_kind[:most]]


class Bench:
    """An engine with the probe and what is collected.

    Args:
        waiting: a peer's process that must not compute meanwhile; what it takes is kept with every slice.
    """

    def __init__(
        self,
        settings: Settings,
        probe: Probe,
        model: OpenModel,
        collected: Collected,
        options: EngineOptions | None = None,
        waiting: Worker | None = None,
    ) -> None:
        self.settings, self.probe, self.model, self.collected = settings, probe, model, collected
        self.options = options or EngineOptions(threads=settings.threads)
        self.engine = serve([model], self.options)
        self.waiting = waiting

    def sibling(self, options: EngineOptions) -> Bench:
        """The same with an engine that is set up otherwise."""
        options = replace(options, threads=self.settings.threads)
        return Bench(self.settings, self.probe, self.model, self.collected, options, self.waiting)

    async def close(self) -> None:
        """The engine ends."""
        await self.engine.close()

    async def __aenter__(self) -> Bench:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def warm_up(self) -> None:
        """The engine learns what its steps cost."""
        name = min(self.collected.clean, key=lambda name: len(self.collected.expected[name]))
        async with Background(self.engine, self.settings.load) as others:
            await others.window(1.0)
            await self._answer(name, "ultrafast", KNOWN)

    async def refer(self) -> None:
        """The expected answers, all at once: standard, without drafts."""
        names = [name for name, turn in self.collected.turns.items() if turn.kind in self.settings.kinds]
        if self.settings.quick:
            names = first_of_each(names, self.collected.turns, 3)
        turns = [self.collected.turns[name] for name in names]
        found = await asyncio.gather(
            *(ask(self.engine, RawText(turn.prompt), greedy(turn), "standard", "off", KNOWN) for turn in turns)
        )
        self.collected.expected = {name: answer.ids for name, answer in zip(names, found, strict=True)}
        self.collected.sort_out(self.settings.per_kind)

    async def idle(self, name: str, gear: GearName, round_number: int, plan: str = "idle") -> None:
        """One turn with the engine to itself."""
        with self.slice(plan, gear, round_number, self.collected.number(name)) as values:
            answers = await self._repeat(name, gear)
            values |= answer_values(answers)

    async def loaded(self, name: str, gear: GearName, round_number: int, plan: str = "loaded") -> None:
        """One turn beside the load, and the load by itself before and after."""
        with self.slice(plan, gear, round_number, self.collected.number(name)) as values:
            async with Background(self.engine, self.settings.load) as others:
                before = await others.window(ALONE_S)
                answers = await self._repeat(name, gear)
                await asyncio.sleep(0.05)
                alone = [before, await others.window(ALONE_S)]
            values |= answer_values(answers)
            values |= beside(others, answers, alone)

    async def batch(self, names: Sequence[str], gear: GearName, round_number: int) -> None:
        """Turns one after the other beside the load: end to end, and each by itself."""
        with self.slice("batch", gear, round_number, 0) as values:
            async with Background(self.engine, self.settings.load):
                answers = [await self._answer(name, gear, new_scope()) for name in names]
            seconds = answers[-1].ended - answers[0].asked
            values |= {"seconds": seconds, "output_share": sum(answer.output_s for answer in answers) / seconds}
        whole = self.collected.slices[-1]
        for name, answer in zip(names, answers, strict=True):
            of_turn = replace(
                whole, plan="batch-turn", turn=self.collected.number(name), values=answer_values([answer])
            )
            self.collected.slices.append(of_turn)

    def some(self) -> list[str]:
        """A turn of each of a few kinds, very different ones first: for what need not be known of every kind."""
        of_kind = {self.collected.turns[name].kind: name for name in self.collected.one_of_each_kind()}
        found = [of_kind[kind] for kind in _TELLING if kind in of_kind]
        return found[: 2 if self.settings.quick else 3]

    @contextmanager
    def slice(self, plan: str, arm: str, round_number: int, turn: int) -> Generator[dict[str, float]]:
        """Keeps the values that the block fills in, with the probes around it."""
        values: dict[str, float] = {}
        before, others_before = self.probe.seconds(), self._others_cpu()
        started = time.perf_counter()
        yield values
        seconds = time.perf_counter() - started
        idle_cpu = self._others_cpu() - others_before
        probe_s = max(before, self.probe.seconds())
        self.collected.slices.append(Slice(plan, arm, round_number, turn, values, probe_s, seconds, idle_cpu, {}))
        names = list(self.collected.turns)
        shown = " ".join(f"{key} {value:.4g}" for key, value in values.items())
        of_turn = f", {names[turn]}" if "first_token_s" in values else ""
        progress(f"{plan}, {arm}{of_turn}: {shown}")

    def differs(self, name: str, at: int | None, where: str) -> None:
        """Raises DifferentAnswer unless `at` is None."""
        self.collected.compared += 1
        if at is not None:
            raise DifferentAnswer(f"{name}, {where}: token {at} is not the one of standard without drafts")

    async def _repeat(self, name: str, gear: GearName) -> list[Answer]:
        answers: list[Answer] = []
        most = 1 if self.settings.quick else MOST_REPEATS
        while len(answers) < most and sum(answer.output_s for answer in answers) < LEAST_S:
            answers.append(await self._answer(name, gear, KNOWN))
        return answers

    async def _answer(self, name: str, gear: GearName, caller: Caller) -> Answer:
        turn = self.collected.turns[name]
        answer = await ask(self.engine, RawText(turn.prompt), greedy(turn), gear, "cold", caller)
        self.collected.check(name, answer.ids, f"{gear}, {self.engine.status().running} streams beside it")
        return answer

    def _others_cpu(self) -> float:
        return self.waiting.cpu_seconds() if self.waiting else 0.0


def answer_values(answers: Sequence[Answer]) -> dict[str, float]:
    """The measures of one turn, asked once or more often."""
    rate = pooled_rate([answer.timeline for answer in answers])
    return {
        **({"rate": rate} if rate else {}),
        **work_values(answers),
        "first_token_s": median(answer.first_token_s for answer in answers),
        "seconds": median(answer.ended - answer.asked for answer in answers),
        "tokens": float(len(answers[0].ids)),
    }


def beside(others: Background, answers: Sequence[Answer], alone: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The measures of the load beside a turn: one of its streams, all of them, all of them by themselves, a step."""
    windows = [(answer.timeline.moments[0], answer.timeline.moments[-1]) for answer in answers]
    own = pooled_rate([answer.timeline for answer in answers])
    stream = median(rate_within(each, windows) for each in others.timelines)
    step = usual_gap(others.timelines, alone)
    values = {
        "stream": stream,
        "total": total_within(others.timelines, windows) + (own or 0.0),
        "alone": total_within(others.timelines, alone),
    }
    if own and stream:
        values["ratio"] = own / stream
    if step:
        values["step_s"] = step
    return values


def sampled(turn: CodingTurn, seed: int) -> Sampling:
    """Temperature 0.7 with the most likely 0.95."""
    return replace(greedy(turn), temperature=0.7, top_p=0.95, seed=seed)


def progress(line: str) -> None:
    """To standard error."""
    print(f"  {line}", file=sys.stderr, flush=True)
