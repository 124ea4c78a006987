"""Every bar beside what was measured for it: one row a bar."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from benchmarks.engine.samples import Spread, spread
from benchmarks.engine.tables import NOTHING, pretty, table, verdict
from benchmarks.gears import bars
from benchmarks.gears.extras import LOOKAHEAD
from benchmarks.gears.reading import Readings, edits, low
from benchmarks.gears.turns import Kind
from gearshift.catalog import GEARS

SHARE = GEARS["ultrafast"].share
FREE: tuple[Kind, ...] = ("explain",)


@dataclass(frozen=True, slots=True)
class Row:
    """One bar: what, how much is asked, what was found, and whether that is enough (None: cannot be said)."""

    measure: str
    bar: str
    found: str
    met: bool | None

    def cells(self) -> list[str]:
        """As the table shows it."""
        return [self.measure, self.bar, self.found, NOTHING if self.met is None else verdict(self.met)]


def at_least(measure: str, bar: float, found: Spread | None, digits: int = 2, unit: str = "") -> Row:
    """A bar that the median must reach."""
    count = f"; {found.count} samples" if found else ""
    return Row(
        measure, f"≥ {bar:,g}{unit}", f"{pretty(found, 1, digits)}{count}", found.median >= bar if found else None
    )


def at_most(measure: str, bar: float, found: Spread | None, digits: int = 2, unit: str = "") -> Row:
    """A bar that the median must not pass."""
    count = f"; {found.count} samples" if found else ""
    return Row(
        measure, f"≤ {bar:,g}{unit}", f"{pretty(found, 1, digits)}{count}", found.median <= bar if found else None
    )


def bars_table(model: str, readings: Readings, kinds: Collection[Kind], amx: bool, errors: Sequence[float]) -> str:
    """All bars of one model."""
    rows = [
        *_idle_rows(model, readings, amx),
        *_loaded_rows(model, readings, edits(kinds)),
        *_batch_rows(readings),
        *_total_rows(model, readings, edits(kinds)),
        *_other_rows(readings),
        at_most("error of predicted rates, median", bars.PREDICTED, spread(list(errors)), 3),
    ]
    return table(["measure", "bar", "measured, median (quartiles)", "met"], [row.cells() for row in rows])


def _idle_rows(model: str, readings: Readings, amx: bool) -> list[Row]:
    rows: list[Row] = []
    for kind, bar in bars.ULTRAFAST_IDLE.get(model, {}).items():
        row = at_least(
            f"ultrafast idle, {kind}, tokens/s", bar, readings.spread("idle", "ultrafast", "rate", [kind]), 0
        )
        rows.append(row if amx else Row(row.measure, f"{row.bar} with AMX", row.found, None))
    ratios = readings.ratios(("idle", "ultrafast"), ("idle", "standard"), "rate")
    if model in bars.BARS:
        rows.append(at_least("ultrafast / standard, both idle", bars.BARS[model].idle, spread(ratios)))
    return rows


def _loaded_rows(model: str, readings: Readings, kinds: Sequence[str]) -> list[Row]:
    ratios = readings.values("loaded", "ultrafast", "ratio", kinds)
    rows: list[Row] = []
    if model in bars.BARS:
        rows.append(at_least("ultrafast / a standard stream beside it, edits", bars.BARS[model].loaded, spread(ratios)))
    fifth = low(ratios)
    rows.append(
        Row(
            "the same, 5th percentile",
            f"≥ {bars.LOADED_LOW:g}",
            f"{fifth:.2f}" if fifth is not None else NOTHING,
            fifth >= bars.LOADED_LOW if fifth is not None else None,
        )
    )
    rows.append(
        at_least(
            "priority / a standard stream beside it, edits",
            bars.LOADED_PRIORITY,
            readings.spread("loaded", "priority", "ratio", kinds),
        )
    )
    rows.append(
        at_least(
            "ultrafast / a standard stream beside it, free-form text",
            bars.LOADED_FREE_TEXT,
            readings.spread("loaded", "ultrafast", "ratio", FREE),
        )
    )
    kept = readings.ratios(("loaded", "ultrafast"), ("idle", "ultrafast"), "rate")
    rows.append(at_least(f"ultrafast loaded / idle (share {SHARE:g})", round(bars.SHARE_KEPT * SHARE, 3), spread(kept)))
    return rows


def _batch_rows(readings: Readings) -> list[Row]:
    times = spread(
        [
            slow.values["seconds"] / fast.values["seconds"]
            for slow, fast in readings.pairs(("batch", "standard"), ("batch", "ultrafast"))
        ]
    )
    rows = [
        at_least("batch of one turn of each kind beside the load, standard time / ultrafast time", bars.BATCH, times)
    ]
    for gear in ("standard", "ultrafast"):
        seconds, share = (readings.spread("batch", gear, measure) for measure in ("seconds", "output_share"))
        rows.append(
            Row(f"batch, {gear}, s", NOTHING, f"{pretty(seconds, 1, 1)}; model output {pretty(share, 100, 0)} %", None)
        )
    return rows


def _total_rows(model: str, readings: Readings, kinds: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    beside = [each for each in readings.of("loaded", "ultrafast", kinds) if each.values.get("alone")]
    ratios = [each.values["total"] / each.values["alone"] for each in beside]
    if model == bars.DRAFTS_WELL:
        rows.append(at_least("total with one ultrafast stream / without, edits", bars.TOTAL_EDITS, spread(ratios)))
    shares: list[float] = []
    for loaded, idle in readings.pairs(("loaded", "ultrafast"), ("idle", "ultrafast")):
        counts = model != bars.DRAFTS_WELL or readings.kind_of(loaded) not in kinds
        if counts and loaded.values.get("alone") and "rate" in idle.values:
            expected = bars.expected_total(loaded.values["alone"], SHARE, idle.values["rate"])
            shares.append(loaded.values["total"] / expected)
    rows.append(
        at_least("total / (0.9 of (1 - share) of the load's own and share of ultrafast idle)", 1.0, spread(shares))
    )
    return rows


def _other_rows(readings: Readings) -> list[Row]:
    rows: list[Row] = []
    for plan in dict.fromkeys(each.plan for each in readings.slices if each.plan.startswith(LOOKAHEAD)):
        streams, text = plan.removeprefix(LOOKAHEAD).split(" ", 1)
        found = spread(readings.ratios((plan, "cold"), (plan, "off"), "total"))
        name = f"lookahead for all / never, total of {streams} streams, {text}"
        rows.append(at_least(name, bars.LOOKAHEAD_TOTAL, found))
    steps = [
        (full.values["first_token_s"] - idle.values["first_token_s"]) / full.values["step_s"]
        for full, idle in readings.pairs(("first-token", "full"), ("first-token", "idle"))
        if full.values.get("step_s")
    ]
    name = "first ultrafast token in a full server, steps beyond its own prefill"
    rows.append(at_most(name, bars.FIRST_TOKEN_STEPS, spread(steps)))
    sampled, greedy = ("sampled", "ultrafast"), ("greedy", "ultrafast")
    rows.append(
        at_least(
            "temperature 0.7, top_p 0.95 / greedy, rate", bars.SAMPLED, spread(readings.ratios(sampled, greedy, "rate"))
        )
    )
    steps_s = [
        (a.values["rate"] / a.values["tokens_per_step"]) / (b.values["rate"] / b.values["tokens_per_step"])
        for a, b in readings.pairs(sampled, greedy)
        if "rate" in a.values and "rate" in b.values
    ]
    rows.append(Row("the same in steps per second", NOTHING, pretty(spread(steps_s), 1, 2), None))
    return rows
