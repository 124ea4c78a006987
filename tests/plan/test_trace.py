"""Traces in files: what is read, and what is said of a line that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from gearshift.plan import BadTrace, Load, TracedTurn, read_trace, synthetic

LINE = '{"arrives_s": 0.5, "gear": "ultrafast", "prompt": 9, "output": 3, "kept": [0, 2], "cached": 8}'


def test_a_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(LINE + "\n\n" + '{"arrives_s": 0, "gear": "standard", "prompt": 1, "output": 1, "after": 0}\n')
    assert read_trace(path) == [
        TracedTurn(0.5, "ultrafast", 9, 3, cached=8, kept=(0, 2)),
        TracedTurn(0.0, "standard", 1, 1, after=0),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"ultrafast"', '"quick"', r"line 2: Invalid enum value 'quick' - at `\$.gear`"),
        ('"prompt": 9', '"prompt": 0', r"line 2: Expected `int` >= 1 - at `\$.prompt`"),
        ('"prompt": 9, ', "", "line 2: Object missing required field `prompt`"),
        ('"cached": 8', '"cached": 9', "line 2: cached is 9, but of 9 prompt tokens the last is always computed"),
        ('"cached": 8', '"cache": 8', "line 2: Object contains unknown field `cache`"),
        ('"cached": 8', '"after": 1', "line 2: after is 1, but must be the index of an earlier turn"),
        ("}", "", "line 2: Input data was truncated"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(LINE + "\n" + LINE.replace(old, new))
    with pytest.raises(BadTrace, match=message):
        read_trace(path)


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n")
    with pytest.raises(BadTrace, match="holds no turns"):
        read_trace(path)


def test_callers_have_one_turn_after_the_other() -> None:
    trace = synthetic([Load("standard", 2), Load("ultrafast", 1, prompt=7)], turns=2)
    assert [turn.after for turn in trace] == [None, 0, None, 2, None, 4]
    assert [turn.prompt for turn in trace] == [512] * 4 + [7] * 2
