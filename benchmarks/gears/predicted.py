"""What the simulator predicts for a measured turn, from a calibration taken in turns with the measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

import msgspec

from benchmarks.engine.arms.timeline import Timeline
from benchmarks.engine.plans import CONTEXT
from benchmarks.gears.measuring import Bench, progress
from benchmarks.gears.rates import pooled_rate, rate_within, total_within
from gearshift.catalog import GEARS, Gear, GearName
from gearshift.conversation import RawText
from gearshift.engine.local.drafting import TurnDrafts
from gearshift.plan.calibrate import calibrate
from gearshift.plan.calibration import Calibration
from gearshift.plan.simulate import Machine, Run, Simulation
from gearshift.plan.trace import TracedTurn

_STREAMS = (24, 17, 16, 12, 8, 4, 2, 1)
"""Rows at which steps are calibrated, besides those of the load with and without an ultrafast stream."""
_STREAM_TOKENS = 4000
"""Of a stream of the load: more than it gets to."""
_ARRIVES_S = 1.5
_ALONE = (0.5, _ARRIVES_S)
MEASURES = ("rate", "stream", "total", "alone")
"""What is predicted of a turn beside the load; of one that runs alone only the first."""


@dataclass(slots=True)
class Calibrated:
    """The calibrations of a run: one before each round and one after the last; and the turns as the simulator takes
    them."""

    calibrations: list[Calibration] = field(default_factory=list[Calibration])
    turns: dict[str, TracedTurn] = field(default_factory=dict[str, TracedTurn])

    def predicted(self, name: str, round_number: int, load: int) -> dict[str, float]:
        """The mean of what the calibrations before and after a round predict of a turn."""
        around = self.calibrations[round_number : round_number + 2]
        found = [predict(self.turns[name], each, load) for each in around]
        return {measure: mean(each[measure] for each in found) for measure in found[0]}

    def data(self) -> list[Any]:
        """The calibrations, for JSON."""
        return [msgspec.to_builtins(each) for each in self.calibrations]


async def measure_predictions(bench: Bench, rounds: int) -> Calibrated:
    """Calibrate, measure turns of some kinds idle and beside the load, calibrate again."""
    calibrated = Calibrated()
    names = bench.some()
    for name in names:
        calibrated.turns[name] = traced(bench, name)
    for round_number in range(rounds):
        calibrated.calibrations.append(_calibrate(bench))
        for name in names:
            await bench.idle(name, "ultrafast", round_number, "predicted-idle")
            await bench.loaded(name, "ultrafast", round_number, "predicted-loaded")
    if not bench.settings.quick:
        calibrated.calibrations.append(_calibrate(bench))
    return calibrated


def _calibrate(bench: Bench) -> Calibration:
    progress("calibrating")
    load, lookahead = bench.settings.load, GEARS["ultrafast"].lookahead
    most = load + lookahead
    streams = {most, load + 1, load, *(count for count in _STREAMS if count < most)}
    rounds = 1 if bench.settings.quick else 2
    return calibrate(bench.model, bench.settings.threads, rounds=rounds, streams=sorted(streams, reverse=True))


def traced(bench: Bench, name: str) -> TracedTurn:
    """A turn as the simulator takes it: its sizes, and how far drafts are right after each of its tokens."""
    prompt = bench.model.renderer.encode(RawText(bench.collected.turns[name].prompt))
    ids = bench.collected.expected[name]
    return TracedTurn(0.0, "ultrafast", len(prompt), len(ids), kept=kept_profile(prompt, ids))


def kept_profile(prompt: Sequence[int], ids: Sequence[int]) -> tuple[int, ...]:
    """How many drafted tokens would be kept after each token of an answer."""
    most = GEARS["ultrafast"].lookahead - 1
    drafter, kept = TurnDrafts(prompt), list[int]()
    for at, token in enumerate(ids):
        drafter.append([token])
        draft = drafter.propose(min(most, len(ids) - at - 1)).tokens
        right = 0
        while right < len(draft) and draft[right] == ids[at + 1 + right]:
            right += 1
        kept.append(right)
    return tuple(kept)


def predict(
    turn: TracedTurn, calibration: Calibration, load: int, gears: Mapping[GearName, Gear] = GEARS
) -> dict[str, float]:
    """The measures of a turn beside so many streams, in the words of a measured slice; with no load its rate only."""
    arrives = _ARRIVES_S if load else 0.0
    cached = CONTEXT - 16
    trace = [TracedTurn(0.0, "standard", CONTEXT, _STREAM_TOKENS, cached) for _ in range(load)]
    trace.append(msgspec.structs.replace(turn, arrives_s=arrives))
    simulation = Simulation(trace, Machine(calibration.cost, calibration.wall), gears)
    timelines: dict[Run, Timeline] = {}
    for _ in simulation.steps():
        _note(simulation, timelines)
        if any(run.done for run in simulation.runs):
            break
    _note(simulation, timelines)
    (fast,) = (timeline for run, timeline in timelines.items() if run.turn.gear != "standard")
    others = [timeline for run, timeline in timelines.items() if run.turn.gear == "standard"]
    rate = pooled_rate([fast]) or 0.0
    if not load:
        return {"rate": rate}
    beside = [(fast.moments[0], fast.moments[-1])]
    stream = median(rate_within(each, beside) for each in others)
    total = total_within(others, beside) + rate
    values = {"rate": rate, "stream": stream, "total": total, "alone": total_within(others, [_ALONE])}
    return {**values, "ratio": rate / stream} if stream else values


def _note(simulation: Simulation, timelines: dict[Run, Timeline]) -> None:
    """Tokens that came since the last call."""
    for run in simulation.runs:
        timeline = timelines.setdefault(run, Timeline())
        new = run.produced - sum(timeline.tokens)
        if new:
            timeline.arrived(simulation.now, new)
