"""One model from its file to its section: which parts are measured, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.engine.arms.steps import step_read_bytes
from benchmarks.engine.probe import Probe
from benchmarks.engine.run import Section
from benchmarks.gears.bars import AMX_FLAG
from benchmarks.gears.extras import first_tokens, lookahead_for_all, sampled_answers, warm_drafts
from benchmarks.gears.measuring import Bench, Collected, DifferentAnswer, Settings, progress
from benchmarks.gears.peer import PeerRun, measure_peer
from benchmarks.gears.predicted import Calibrated, measure_predictions, predict
from benchmarks.gears.report import ModelRun, model_section
from benchmarks.gears.shares import MEASURED, SIMULATED, frontier_turns, gears_with, measure_shares
from benchmarks.gears.turns import CodingTurn, coding_turns
from gearshift.engine.local.download import model_path
from gearshift.engine.local.load import open_model

_QUICK_TOKENS = 400
"""Most tokens of an answer in a quick run."""
_ROUND_PARTS = ("predicted-idle", "predicted-loaded")


async def measure_model(
    name: str, settings: Settings, probe: Probe, flags: Sequence[str], peer: Path | None, root: Path
) -> Section:
    """All measurements of one model. Raises DifferentAnswer with the slices so far in `data`."""
    model = open_model(name, model_path(name))
    weight_bytes = step_read_bytes(str(model.path))
    collected = Collected({turn.name: _shortened(turn) if settings.quick else turn for turn in coding_turns()})
    bandwidths: list[float] = []
    rounds = settings.rounds
    try:
        async with Bench(settings, probe, model, collected) as bench:
            progress("expected answers: standard without drafts")
            await bench.refer()
            if not collected.clean:
                raise ValueError(f"{name}: no turn of the kinds {', '.join(settings.kinds)} has an answer that counts.")
            progress(f"turns that count: {', '.join(collected.clean)}")
            await bench.warm_up()
            for round_number in range(rounds):
                bandwidths.append(probe.read_bandwidth(weight_bytes))
                await _round(bench, round_number)
            for looped in collected.looped[: 1 if settings.quick else 3]:
                await bench.idle(looped, "ultrafast", 0, "looped")
            calibrated = await measure_predictions(bench, 1)
            await measure_shares(bench, MEASURED[-1:] if settings.quick else MEASURED, 1)
            await sampled_answers(bench, 1)
            await warm_drafts(bench, 1)
            await first_tokens(bench, rounds)
            await lookahead_for_all(bench, 1)
            compared = await measure_peer(bench, peer, root, 1) if peer else None
            run = ModelRun(
                model=name,
                isa=bench.engine.resident[0].isa,
                amx=AMX_FLAG in flags,
                load=settings.load,
                kinds=settings.kinds,
                collected=collected,
                weight_bytes=weight_bytes,
                bandwidths=bandwidths,
                frontier=_frontier(bench, calibrated),
                predictions=_predictions(calibrated, collected, settings.load),
                peer=compared,
            )
    except DifferentAnswer as error:
        error.data = [asdict(each) for each in collected.slices]
        raise
    return Section(name, model_section(run), _data(run, calibrated, compared))


def _shortened(turn: CodingTurn) -> CodingTurn:
    return replace(turn, most_tokens=min(turn.most_tokens, _QUICK_TOKENS))


async def _round(bench: Bench, round_number: int) -> None:
    """All turns in all gears, forward or backward: a turn's gears follow each other."""
    forward = round_number % 2 == 0
    names = bench.collected.clean if forward else bench.collected.clean[::-1]
    for name in names:
        for gear in ("ultrafast", "priority", "standard") if forward else ("standard", "priority", "ultrafast"):
            if gear != "priority" or round_number == 0:
                await bench.idle(name, gear, round_number)
        await bench.loaded(name, "ultrafast", round_number)
        if round_number == 0 and name in (bench.some() if bench.settings.quick else bench.collected.one_of_each_kind()):
            await bench.loaded(name, "priority", round_number)
    batch = bench.some() if bench.settings.quick else bench.collected.one_of_each_kind()
    for gear in ("ultrafast", "standard") if forward else ("standard", "ultrafast"):
        await bench.batch(batch, gear, round_number)


def _frontier(bench: Bench, calibrated: Calibrated) -> dict[float, dict[str, float]]:
    """What the last calibration says of every share: the mean over the turns that were measured."""
    found: dict[float, dict[str, float]] = {}
    for share in SIMULATED:
        each = [
            predict(calibrated.turns[name], calibrated.calibrations[-1], bench.settings.load, gears_with(share))
            for name in frontier_turns(bench)
        ]
        found[share] = {
            measure: sum(one[measure] for one in each) / len(each)
            for measure in each[0]
            if all(measure in one for one in each)
        }
    return found


def _predictions(
    calibrated: Calibrated, collected: Collected, load: int
) -> dict[tuple[str, str, int], dict[str, float]]:
    """Predicted values by plan, turn and round."""
    rounds = range(max(len(calibrated.calibrations) - 1, 1))
    return {
        (plan, name, round_number): calibrated.predicted(name, round_number, streams)
        for plan, streams in zip(_ROUND_PARTS, (0, load), strict=True)
        for name in calibrated.turns
        for round_number in rounds
    }


def _data(run: ModelRun, calibrated: Calibrated, peer: PeerRun | None) -> dict[str, Any]:
    collected = run.collected
    return {
        "slices": [asdict(each) for each in collected.slices],
        "turns": {name: {"kind": turn.kind} for name, turn in collected.turns.items()},
        "clean": collected.clean,
        "looped": collected.looped,
        "short": collected.short,
        "compared": collected.compared,
        "weight_bytes": run.weight_bytes,
        "bandwidths": list(run.bandwidths),
        "calibrations": calibrated.data(),
        "predictions": [[*key, values] for key, values in run.predictions.items()],
        "frontier": [[share, values] for share, values in run.frontier.items()],
        "peer": asdict(peer) if peer else None,
    }
