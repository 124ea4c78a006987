"""The result as Markdown: one table per instruction-set path, with medians, quartiles, ratios and bars."""

from __future__ import annotations

from benchmarks.engine.bars import ALL_MEASURES, BANDWIDTH_SHARE, STEP_MULTIPLES, bar_for
from benchmarks.engine.comparison import Comparison
from benchmarks.engine.machine import Machine
from benchmarks.engine.plans import PREFILL_KEY, PREFILL_TOKENS, decode_key, limit_rate, rows_key
from benchmarks.engine.samples import Spread, idle_share, inner_ratios, paired_ratios, quantile, spread, values_of
from benchmarks.engine.tables import NOTHING, dropped_line, pretty, table, verdict


def machine_lines(machine: Machine, threads: int) -> str:
    """Where and with what a run was made."""
    changed = f" with {machine.changed_files} changed files" if machine.changed_files else ""
    hardware = f"{machine.processor}, {machine.cores} cores ({', '.join(machine.flags)})"
    software = f"{machine.system}; Python {machine.python}; commit {machine.commit[:12]}{changed}"
    return (
        f"{hardware}, {machine.memory_bytes / 2**30:.0f} GiB; {software}; {threads} threads for every engine; "
        f"load before the run {machine.load_before:.1f}."
    )


def comparison_section(comparison: Comparison) -> str:
    """One path: the table of rates, the table of step multiples, and what was left out."""
    parts = [f"### Path `{comparison.isa}`", _rates_table(comparison)]
    steps = _steps_table(comparison)
    if steps:
        parts.append(steps)
    waiting = idle_share(comparison.counted())
    parts.append(
        f"{dropped_line(comparison.proper(), comparison.counted())} "
        f"While one worker ran, the waiting ones took at most {waiting:.1%} of a core."
    )
    bandwidth = spread(comparison.bandwidths)
    if bandwidth is not None:
        parts.append(
            f"Streaming read of {comparison.weight_bytes / 1e6:.1f} MB, the weights of one step: "
            f"{pretty(bandwidth, 1e-9, 1)} GB/s."
        )
    return "\n\n".join(parts)


def _rates_table(comparison: Comparison) -> str:
    counted = comparison.counted()
    header = ["tokens/s, median (quartiles)", *comparison.ours, "llama.cpp, its best format"]
    header += [f"{arm} / llama.cpp" for arm in comparison.ours] + ["bar", "met"]
    header += [f"{arm}: share of the limit" for arm in comparison.ours]
    rows: list[list[str]] = []
    for measure in ALL_MEASURES:
        peer = comparison.best_peer.get(measure)
        measured = {arm: spread(values_of(counted, arm, measure)) for arm in comparison.ours}
        ratios = {arm: spread(paired_ratios(counted, measure, arm, peer)) if peer else None for arm in comparison.ours}
        peer_rate = spread(values_of(counted, peer, measure)) if peer else None
        bar = bar_for(comparison.isa, measure)
        # Judged by the slowest of our arms, and only when every arm that was measured has a pair left.
        complete = all(ratios[arm] for arm, rate in measured.items() if rate)
        judged = [ratio.median for ratio in ratios.values() if ratio is not None] if complete else []
        cells = [_title(measure), *(_rate(measure, found) for found in measured.values())]
        cells.append(
            f"{_rate(measure, peer_rate)} {peer.removeprefix('llama.cpp ')}" if peer and peer_rate else NOTHING
        )
        cells += [pretty(ratio, 1, 2) for ratio in ratios.values()]
        cells.append(f"≥ {bar.ratio:g}" if bar else NOTHING)
        cells.append(verdict(min(judged) >= bar.ratio) if bar and judged else NOTHING)
        cells += [_share(comparison, measure, found) for found in measured.values()]
        rows.append(cells)
    return table(header, rows)


def _steps_table(comparison: Comparison) -> str:
    counted = comparison.counted()
    rows: list[list[str]] = []
    for arm in comparison.ours:
        for count, most in STEP_MULTIPLES.items():
            # A rate counts n rows a step, so the step's multiple is n times the inverse ratio of the rates.
            speedups = inner_ratios(counted, arm, rows_key(count), rows_key(1))
            found = spread([count / speedup for speedup in speedups])
            if found is not None:
                rows.append(
                    [arm, f"{count} rows / 1 row", pretty(found, 1, 2), f"≤ {most:g}", verdict(found.median <= most)]
                )
    return table(["arm", "step", "times", "bar", "met"], rows) if rows else ""


def _share(comparison: Comparison, measure: str, rate: Spread | None) -> str:
    if rate is None or not comparison.bandwidths:
        return NOTHING
    limit = limit_rate(measure, comparison.weight_bytes, quantile(comparison.bandwidths, 0.5))
    share = f"{rate.median / limit:.0%}"
    if measure == decode_key(1):
        share += f" (bar ≥ {BANDWIDTH_SHARE:.0%}: {verdict(rate.median / limit >= BANDWIDTH_SHARE)})"
    return share


def _title(measure: str) -> str:
    kind, _, count = measure.partition("-")
    if kind == PREFILL_KEY:
        return f"prefill of {PREFILL_TOKENS:,} tokens"
    if kind == "rows":
        return f"step of {count} rows of one stream" if count != "1" else "step of 1 row"
    return f"{count} streams, total decode" if count != "1" else "one stream, decode"


def _rate(measure: str, rate: Spread | None) -> str:
    if rate is None:
        return NOTHING
    kind, _, count = measure.partition("-")
    step = f", {int(count) / rate.median * 1000:.2f} ms a step" if kind == "rows" else ""
    return f"{pretty(rate, 1, 0)}{step}"
