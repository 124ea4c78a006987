"""One model's tables: every kind idle and beside the load, the bars, the frontier, the predictions, the peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.engine.samples import Spread, idle_share, quantile, spread, without_slow
from benchmarks.engine.tables import NOTHING, dropped_line, pretty, table, verdict
from benchmarks.gears import bars
from benchmarks.gears.judged import bars_table
from benchmarks.gears.measuring import Collected
from benchmarks.gears.peer import NAME, PeerRun
from benchmarks.gears.reading import Readings
from benchmarks.gears.shares import share_plan
from benchmarks.gears.turns import KINDS, Kind
from gearshift.catalog import GEARS

GEAR_NAMES = tuple(GEARS)


@dataclass(frozen=True, slots=True)
class ModelRun:
    """Everything of one model.

    Attributes:
        weight_bytes: bytes that a step must read.
        bandwidths: bytes per second of the streaming read.
        frontier: share -> simulated values.
        predictions: (plan, turn, round) -> predicted values.
    """

    model: str
    isa: str
    amx: bool
    load: int
    kinds: Sequence[Kind]
    collected: Collected
    weight_bytes: int
    bandwidths: Sequence[float]
    frontier: Mapping[float, Mapping[str, float]] = field(default_factory=dict[float, Mapping[str, float]])
    predictions: Mapping[tuple[str, str, int], Mapping[str, float]] = field(
        default_factory=dict[tuple[str, str, int], Mapping[str, float]]
    )
    peer: PeerRun | None = None

    def readings(self) -> Readings:
        """The slices that count."""
        return Readings(without_slow(self.collected.slices), list(self.collected.turns.values()))


def model_section(run: ModelRun) -> str:
    """All tables of a model."""
    readings = run.readings()
    collected = run.collected
    parts = [
        f"### {run.model} (path `{run.isa}`)",
        f"{collected.compared} answers compared token by token with those of standard without drafts: all the same. "
        f"{apart_line(collected)}",
        bars_table(run.model, readings, run.kinds, run.amx, errors_of(run, readings)),
        "#### Idle: tokens per second",
        idle_table(run, readings),
        f"#### Beside {run.load} standard streams: tokens per second",
        loaded_table(run, readings),
        work_table(run, readings),
        "#### Total throughput against speed, over the share of ultrafast",
        frontier_table(run, readings),
        "#### Predicted and measured",
        predicted_table(run, readings),
    ]
    if run.peer:
        parts += ["#### A peer under the same load", peer_table(run, readings), run.peer.told]
    slices = collected.slices
    bandwidth = spread(run.bandwidths)
    parts.append(
        f"{dropped_line(slices, without_slow(slices))} The waiting peer took at most {idle_share(slices):.1%} of a "
        f"core. Streaming read of {run.weight_bytes / 1e6:.1f} MB, the weights of one step: "
        f"{pretty(bandwidth, 1e-9, 1)} GB/s."
    )
    return "\n\n".join(part for part in parts if part)


def apart_line(collected: Collected) -> str:
    """The turns that were asked and do not count."""
    told: list[str] = []
    if collected.looped:
        told.append(f"in a loop and apart: {', '.join(collected.looped)}")
    if collected.short:
        told.append(f"too short for a rate: {', '.join(collected.short)}")
    return f"Turns that count: {', '.join(collected.clean)}; {'; '.join(told) or 'none is left out'}."


def idle_table(run: ModelRun, readings: Readings) -> str:
    """Each gear by kind; warm apart; the limit set by reading the weights."""
    header = ["kind", *GEAR_NAMES, "ultrafast / standard", "tokens per step", "rows per step"]
    header += ["limit by reading the weights", "share of it", "ultrafast, warm (apart)"]
    rows: list[list[str]] = []
    for kind in _kinds(run):
        per_step = readings.spread("idle", "ultrafast", "tokens_per_step", [kind])
        rate = readings.spread("idle", "ultrafast", "rate", [kind])
        limit = limit_rate(per_step, run)
        rows.append(
            [
                KINDS[kind],
                *(pretty(readings.spread("idle", gear, "rate", [kind]), 1, 0) for gear in GEAR_NAMES),
                pretty(spread(readings.ratios(("idle", "ultrafast"), ("idle", "standard"), "rate", [kind])), 1, 2),
                pretty(per_step, 1, 2),
                pretty(readings.spread("idle", "ultrafast", "rows_per_step", [kind]), 1, 1),
                f"{limit:,.0f}" if limit else NOTHING,
                f"{rate.median / limit:.0%}" if rate and limit else NOTHING,
                pretty(readings.spread("warm", "ultrafast", "rate", [kind]), 1, 0),
            ]
        )
    looped = readings.spread("looped", "ultrafast", "rate")
    apart = f"\n\nApart, answers that loop, ultrafast idle: {pretty(looped, 1, 0)} tokens/s." if looped else ""
    return table(header, rows) + apart


def limit_rate(per_step: Spread | None, run: ModelRun) -> float | None:
    """Tokens per second if a step took exactly as long as reading the weights."""
    if per_step is None or not run.bandwidths:
        return None
    return per_step.median * quantile(run.bandwidths, 0.5) / run.weight_bytes


def loaded_table(run: ModelRun, readings: Readings) -> str:
    """Each gear by kind beside the load, and what became of the load."""
    header = ["kind", "standard (in the batch)", "priority", "ultrafast", "a stream beside ultrafast"]
    header += [
        "ultrafast / that stream",
        "priority / the stream beside it",
        "ultrafast loaded / idle",
        "total / without",
    ]
    rows: list[list[str]] = []
    for kind in _kinds(run):
        only = [kind]
        totals = [
            each.values["total"] / each.values["alone"]
            for each in readings.of("loaded", "ultrafast", only)
            if each.values.get("alone")
        ]
        rows.append(
            [
                KINDS[kind],
                pretty(readings.spread("batch-turn", "standard", "rate", only), 1, 1),
                pretty(readings.spread("loaded", "priority", "rate", only), 1, 0),
                pretty(readings.spread("loaded", "ultrafast", "rate", only), 1, 0),
                pretty(readings.spread("loaded", "ultrafast", "stream", only), 1, 1),
                pretty(readings.spread("loaded", "ultrafast", "ratio", only), 1, 1),
                pretty(readings.spread("loaded", "priority", "ratio", only), 1, 1),
                pretty(spread(readings.ratios(("loaded", "ultrafast"), ("idle", "ultrafast"), "rate", only)), 1, 2),
                pretty(spread(totals), 1, 2),
            ]
        )
    alone = readings.spread("loaded", "ultrafast", "alone")
    step = readings.spread("loaded", "ultrafast", "step_s")
    told = f"The load by itself: {pretty(alone, 1, 0)} tokens/s in total, {pretty(step, 1000, 1)} ms a step."
    return f"{table(header, rows)}\n\n{told}"


def work_table(run: ModelRun, readings: Readings) -> str:
    """Accepted tokens and rows per step, by gear, idle and loaded."""
    rows: list[list[str]] = []
    for kind in _kinds(run):
        for gear in GEAR_NAMES:
            cells = [
                pretty(readings.spread(plan, gear, measure, [kind]), 1, 2)
                for plan in ("idle", "batch-turn" if gear == "standard" else "loaded")
                for measure in ("tokens_per_step", "rows_per_step")
            ]
            rows.append([KINDS[kind], gear, *cells])
    header = ["kind", "gear", "tokens per step, idle", "rows per step, idle"]
    return table([*header, "tokens per step, loaded", "rows per step, loaded"], rows)


def frontier_table(run: ModelRun, readings: Readings) -> str:
    """Measured for a few shares, simulated beside it."""
    header = ["share", "ultrafast, tokens/s", "ultrafast / standard stream", "total / without"]
    header += ["simulated: ultrafast", "ultrafast / standard stream", "total / without"]
    rows: list[list[str]] = []
    for share, simulated in run.frontier.items():
        found = readings.of(share_plan(share), "ultrafast")
        totals = [each.values["total"] / each.values["alone"] for each in found if each.values.get("alone")]
        ratio = f"{simulated['ratio']:.1f}" if "ratio" in simulated else NOTHING
        rows.append(
            [
                f"{share:g}",
                pretty(readings.spread(share_plan(share), "ultrafast", "rate"), 1, 0),
                pretty(readings.spread(share_plan(share), "ultrafast", "ratio"), 1, 1),
                pretty(spread(totals), 1, 2),
                f"{simulated['rate']:.0f}",
                ratio,
                f"{simulated['total'] / simulated['alone']:.2f}" if simulated.get("alone") else NOTHING,
            ]
        )
    return table(header, rows)


def errors_of(run: ModelRun, readings: Readings, plan: str | None = None, measure: str | None = None) -> list[float]:
    """How far predictions were off, as parts of what was measured."""
    names = list(run.collected.turns)
    errors: list[float] = []
    for each in readings.slices:
        predicted = run.predictions.get((each.plan, names[each.turn], each.round))
        if predicted is None or (plan is not None and each.plan != plan):
            continue
        errors += [
            abs(value / each.values[name] - 1)
            for name, value in predicted.items()
            if each.values.get(name) and (name == measure if measure else name != "ratio")
        ]
    return errors


def predicted_table(run: ModelRun, readings: Readings) -> str:
    """The median error of each predicted measure."""
    titles = {
        ("predicted-idle", "rate"): "ultrafast idle",
        ("predicted-loaded", "rate"): "ultrafast beside the load",
        ("predicted-loaded", "stream"): "a standard stream beside it",
        ("predicted-loaded", "total"): "total",
        ("predicted-loaded", "alone"): "total without it",
        ("predicted-loaded", "ratio"): "ultrafast / standard stream (not in the bar: it is no rate)",
    }
    rows: list[list[str]] = []
    for (plan, measure), title in titles.items():
        found = errors_of(run, readings, plan, measure)
        shown = f"{median(found):.1%}" if found else NOTHING
        met = verdict(median(found) <= bars.PREDICTED) if found and measure != "ratio" else NOTHING
        rows.append([title, shown, f"{len(found)}", met])
    return table(["rate", "error, median", "samples", f"within {bars.PREDICTED:.0%}"], rows)


def peer_table(run: ModelRun, readings: Readings) -> str:
    """The peer and ultrafast on the same turns, in turns; by kind."""
    header = ["kind", "peer idle", "ultrafast idle", "ultrafast / peer", "peer's stream under load"]
    header += ["ultrafast under load", "ultrafast / peer", "peer: its stream / one of the load", "peer: total"]
    rows: list[list[str]] = []
    for kind in _kinds(run):
        only = [kind]
        peer_ratio = [
            each.values["rate"] / each.values["stream"]
            for each in readings.of("peer-loaded", NAME, only)
            if each.values.get("stream")
        ]
        cells: list[str] = []
        for plan in ("peer-idle", "peer-loaded"):
            cells += [pretty(readings.spread(plan, arm, "rate", only), 1, 0) for arm in (NAME, "ultrafast")]
            cells.append(pretty(spread(readings.ratios((plan, "ultrafast"), (plan, NAME), "rate", only)), 1, 2))
        total = readings.spread("peer-loaded", NAME, "total", only)
        rows.append([KINDS[kind], *cells, pretty(spread(peer_ratio), 1, 1), pretty(total, 1, 0)])
    return table(header, rows)


def _kinds(run: ModelRun) -> list[Kind]:
    turns = run.collected.turns
    return [kind for kind in KINDS if any(turns[name].kind == kind for name in run.collected.clean)]
