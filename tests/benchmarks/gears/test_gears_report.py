"""The tables and bars over slices made by hand."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.gears.bars import expected_total
from benchmarks.gears.judged import bars_table
from benchmarks.gears.report import errors_of, idle_table, loaded_table, model_section

from tests.benchmarks.gears.measured import NAMES, add, collected, run_of


def cells_of(text: str, start: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def bars_of(found_model: str = "gemma-3-270m", amx: bool = True) -> str:
    found = collected()
    for at in range(2):
        add(found, "idle", "ultrafast", at, rate=1200.0 - 900 * at, tokens_per_step=12.0, rows_per_step=14.0)
        add(found, "idle", "standard", at, rate=100.0, tokens_per_step=1.0, rows_per_step=1.0)
        add(found, "loaded", "ultrafast", at, rate=600.0, stream=50.0, ratio=12.0, total=900.0, alone=1000.0)
        add(found, "loaded", "priority", at, rate=90.0, stream=30.0, ratio=3.0, total=1000.0, alone=1000.0)
    add(found, "batch", "standard", 0, seconds=60.0, output_share=0.9)
    add(found, "batch", "ultrafast", 0, seconds=10.0, output_share=0.6)
    add(found, "first-token", "idle", 0, first_token_s=0.30)
    add(found, "first-token", "full", 0, first_token_s=0.36, step_s=0.04)
    add(found, "greedy", "ultrafast", 0, rate=1000.0, tokens_per_step=10.0)
    add(found, "sampled", "ultrafast", 0, rate=850.0, tokens_per_step=8.5)
    add(found, "lookahead 32 edits", "cold", 0, total=930.0)
    add(found, "lookahead 32 edits", "off", 0, total=1000.0)
    run = run_of(found, found_model, amx)
    return bars_table(found_model, run.readings(), NAMES, amx, [0.1, 0.18])


def test_every_bar_is_judged_by_its_median() -> None:
    text = bars_of()
    assert cells_of(text, "ultrafast idle, copy")[1:] == ["≥ 1,000", "1,200 (1,200–1,200); 1 samples", "yes"]
    assert cells_of(text, "ultrafast / standard, both idle")[1:] == ["≥ 5", "7.50 (5.25–9.75); 2 samples", "yes"]
    assert cells_of(text, "ultrafast / a standard stream beside it, edits")[3] == "**no**"
    assert cells_of(text, "the same, 5th percentile")[1:] == ["≥ 10", "12.00", "yes"]
    assert cells_of(text, "priority / a standard stream")[3] == "yes"
    assert cells_of(text, "ultrafast loaded / idle")[1:3] == ["≥ 0.54", "1.25 (0.88–1.62); 2 samples"]
    assert cells_of(text, "batch of one turn")[2].startswith("6.00")
    assert cells_of(text, "total with one ultrafast")[1:3] == ["≥ 0.75", "0.90 (0.90–0.90); 1 samples"]
    assert cells_of(text, "first ultrafast token")[2:] == ["1.50 (1.50–1.50); 1 samples", "yes"]
    assert cells_of(text, "temperature 0.7")[2:] == ["0.85 (0.85–0.85); 1 samples", "**no**"]
    assert cells_of(text, "the same in steps per second")[2] == "1.00 (1.00–1.00)"
    assert cells_of(text, "lookahead for all / never, total of 32 streams, edits")[3] == "**no**"
    assert cells_of(text, "error of predicted rates")[1:] == ["≤ 0.15", "0.140 (0.120–0.160); 2 samples", "yes"]


def test_bars_of_a_machine_with_amx_are_not_held_against_another() -> None:
    cells = cells_of(bars_of(amx=False), "ultrafast idle, copy")
    assert cells[1] == "≥ 1,000 with AMX"
    assert cells[3] == "–"


def test_where_the_model_drafts_badly_edits_are_held_to_the_expected_total_as_well() -> None:
    assert expected_total(alone=1000.0, share=0.6, idle=1200.0) == 0.9 * (400 + 720)
    expected = [900 / expected_total(1000, 0.6, 1200), 900 / expected_total(1000, 0.6, 300)]
    assert f"{sum(expected) / 2:.2f}" in cells_of(bars_of("smollm2-135m-instruct"), "total / (0.9")[2]
    assert cells_of(bars_of(), "total / (0.9")[2].startswith(f"{expected[1]:.2f}")


def test_a_measure_without_slices_is_a_dash_and_no_verdict() -> None:
    run = run_of(collected())
    text = bars_table(run.model, run.readings(), NAMES, True, [])
    assert cells_of(text, "ultrafast / standard, both idle")[2:] == ["–", "–"]
    assert cells_of(text, "error of predicted rates")[2:] == ["–", "–"]


def test_the_limit_is_one_read_of_the_weights_a_step() -> None:
    found = collected()
    add(found, "idle", "ultrafast", 0, rate=600.0, tokens_per_step=12.0)
    cells = cells_of(idle_table(run_of(found), run_of(found).readings()), "whole-file rewrite")
    assert cells[-3:-1] == ["1,200", "50%"]


def test_ratios_pair_slices_of_the_same_turn_and_round() -> None:
    found = collected()
    add(found, "idle", "ultrafast", 0, 0, rate=1000.0)
    add(found, "idle", "ultrafast", 0, 1, rate=500.0)
    add(found, "loaded", "ultrafast", 0, 0, rate=700.0, total=1.0, alone=1.0)
    add(found, "loaded", "ultrafast", 0, 1, rate=300.0, total=1.0, alone=1.0)
    add(found, "loaded", "ultrafast", 1, 0, rate=9e9, total=1.0, alone=1.0)
    cells = cells_of(loaded_table(run_of(found), run_of(found).readings()), "whole-file rewrite")
    assert cells[7] == "0.65 (0.62–0.67)"


def test_predictions_are_held_against_their_own_slices() -> None:
    found = collected()
    add(found, "predicted-idle", "ultrafast", 0, rate=100.0)
    add(found, "predicted-loaded", "ultrafast", 0, rate=50.0, stream=10.0, ratio=5.0)
    run = run_of(found)
    predictions = {
        ("predicted-idle", "copy-0", 0): {"rate": 110.0},
        ("predicted-loaded", "copy-0", 0): {"rate": 40.0, "stream": 10.0, "ratio": 4.0},
    }
    run = replace(run, predictions=predictions)
    assert sorted(round(error, 3) for error in errors_of(run, run.readings())) == [0.0, 0.1, 0.2]
    assert [round(e, 3) for e in errors_of(run, run.readings(), "predicted-loaded", "ratio")] == [0.2]


def test_the_section_names_what_does_not_count() -> None:
    found = collected()
    found.looped, found.compared = ["copy-3"], 12
    text = model_section(run_of(found))
    assert "12 answers compared token by token" in text
    assert "in a loop and apart: copy-3" in text
