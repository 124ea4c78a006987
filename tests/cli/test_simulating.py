"""`gearshift simulate` from the outside: what it prints, and what it says of options that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gearshift.cli import app
from gearshift.plan.calibration import Calibration, Curve, write_calibration


@pytest.fixture
def cost(tmp_path: Path) -> Path:
    curve = Curve(((1.0, 0.006), (16.0, 0.012), (64.0, 0.030), (512.0, 0.250)))
    write_calibration(tmp_path / "cost.json", Calibration("some-model", "avx2", 2, curve, curve))
    return tmp_path / "cost.json"


def simulate(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_a_trace_is_told_by_gear(cost: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"arrives_s": 0, "gear": "standard", "prompt": 1, "output": 100}\n')
    code, out, _ = simulate(trace, "--cost", cost)
    assert code == 0
    assert "standard       1     100     166.7          0.006   0.01" in out
    assert "100 steps of 1.0 rows" in out


def test_a_synthetic_load_has_a_ratio_and_a_frontier(cost: Path) -> None:
    load = ("--synthetic", "standard=16,ultrafast=1", "--cost", cost, "--turns", "2", "--output", "50")
    code, out, _ = simulate(*load, "--shares", "priority=0.1")
    assert code == 0
    assert "times as fast as a standard one" in out
    code, out, _ = simulate(*load, "--frontier")
    assert code == 0
    assert [line[:5] for line in out.splitlines()[1:]] == [f"  {share / 10}" for share in range(1, 9)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a trace or --synthetic"),
        (["--synthetic", "standard=1"], "give --cost FILE, or --calibrate MODEL to measure it"),
        (["--synthetic", "quick=1"], "--synthetic is 'quick=1', but must be like standard=16,ultrafast=1"),
        (["--synthetic", "standard=0.5"], "--synthetic takes whole numbers of callers"),
        (["--synthetic", "standard=1", "--cost", "absent.json"], "absent.json"),
        (["absent.jsonl"], "absent.jsonl"),
        (["--calibrate", "absent-model"], "absent-model"),
    ],
)
def test_what_makes_no_sense_is_said(arguments: list[str], message: str) -> None:
    code, out, err = simulate(*arguments)
    assert (code, out) == (1, "")
    assert message in err


def test_shares_that_promise_too_much_are_said(cost: Path) -> None:
    code, _, err = simulate("--synthetic", "standard=1", "--cost", cost, "--shares", "ultrafast=0.9")
    assert code == 1
    assert "shares must be 0 or more and together 0.95 at most" in err
