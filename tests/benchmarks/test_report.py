"""The report over slices made by hand: medians, ratios, verdicts, and what was left out."""

from __future__ import annotations

from benchmarks.engine.comparison import SELECTION_ROUND, Comparison
from benchmarks.engine.report import comparison_section
from benchmarks.engine.samples import Slice

PEER = "llama.cpp Q4_0"


def row(text: str, start: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def comparison_with(kernel: float, engine: float, peer: float) -> Comparison:
    found = Comparison("avx2", ours=["kernel", "engine"], weight_bytes=100_000_000, bandwidths=[40e9])
    found.best_peer = {"decode-1": PEER}
    values = {"kernel": kernel, "engine": engine, PEER: peer}
    for number in range(4):
        for turn in (0, 1):
            for arm, value in values.items():
                found.slices.append(Slice("decode-1", arm, number, turn, {"decode-1": value}, 0.01, 1.0, 0.02, {}))
    return found


def test_a_row_shows_rates_ratios_bar_and_share() -> None:
    text = comparison_section(comparison_with(kernel=300, engine=280, peer=100))
    cells = row(text, "one stream, decode")
    assert cells[1:4] == ["300 (300–300)", "280 (280–280)", "100 (100–100) Q4_0"]
    assert cells[4:6] == ["3.00 (3.00–3.00)", "2.80 (2.80–2.80)"]
    assert cells[6:8] == ["≥ 1.3", "yes"]
    assert cells[8] == "75% (bar ≥ 70%: yes)"
    assert "0 of 24 slices left out" in text
    assert "2.0% of a core" in text


def test_the_slower_of_our_arms_is_judged() -> None:
    cells = row(comparison_section(comparison_with(kernel=300, engine=120, peer=100)), "one stream, decode")
    assert cells[7] == "**no**"
    assert cells[9] == "30% (bar ≥ 70%: **no**)"


def test_slow_slices_and_the_selection_do_not_count() -> None:
    found = comparison_with(kernel=300, engine=300, peer=100)
    found.slices.append(Slice("decode-1", "kernel", 9, 0, {"decode-1": 9e9}, 0.02, 1.0, 0.0, {}))
    found.slices.append(Slice("decode-1", PEER, SELECTION_ROUND, 0, {"decode-1": 9e9}, 0.01, 1.0, 0.0, {}))
    text = comparison_section(found)
    assert row(text, "one stream, decode")[1:4] == ["300 (300–300)", "300 (300–300)", "100 (100–100) Q4_0"]
    assert "1 of 25 slices left out" in text


def test_step_multiples_are_judged() -> None:
    found = Comparison("amx", ours=["kernel"])
    rates = {"rows-1": 500.0, "rows-4": 1000.0, "rows-16": 4000.0, "rows-64": 5000.0}
    found.slices.append(Slice("rows", "kernel", 0, 0, rates, 0.01, 1.0, 0.0, {}))
    text = comparison_section(found)
    assert row(text, "kernel | 4 rows")[2:] == ["2.00 (2.00–2.00)", "≤ 1.7", "**no**"]
    assert row(text, "kernel | 16 rows")[2:] == ["2.00 (2.00–2.00)", "≤ 3.3", "yes"]
    assert row(text, "kernel | 64 rows")[2:] == ["6.40 (6.40–6.40)", "≤ 11", "yes"]


def test_an_arm_without_a_pair_leaves_the_row_unjudged() -> None:
    found = comparison_with(kernel=300, engine=280, peer=100)
    found.slices = [each for each in found.slices if each.arm != "engine"]
    found.slices.append(Slice("decode-1", "engine", 9, 0, {"decode-1": 280.0}, 0.01, 1.0, 0.0, {}))
    assert row(comparison_section(found), "one stream, decode")[7] == "–"


def test_a_run_on_a_busy_machine_says_so() -> None:
    found = comparison_with(kernel=300, engine=280, peer=100)
    assert "more than half" not in comparison_section(found)
    slow = Slice("decode-1", "engine", 9, 0, {"decode-1": 1.0}, 0.5, 1.0, 0.0, {})
    found.slices += [slow] * (len(found.slices) + 1)
    assert "25 of 49 slices left out" in comparison_section(found)
    assert "more than half" in comparison_section(found)
