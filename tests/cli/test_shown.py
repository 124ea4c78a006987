"""Progress where nobody watches: few lines, and none twice."""

from __future__ import annotations

import pytest

from gearshift.cli import shown
from gearshift.cli.shown import ShownProgress


def test_piped_progress_says_each_thing_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(shown.time, "monotonic", lambda: now)
    progress = ShownProgress()
    for done in range(101):
        # Two works at once, told about by turns.
        progress("packing", done, 100)
        progress("checking", done, 200)
        now += 0.125
    for _ in range(3):
        progress("packing", 100, 100)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "packing" in line] == [
        "packing: 0%",
        "packing: 40%",
        "packing: 80%",
        "packing: 100%",
    ]
    assert [line for line in lines if "checking" in line] == ["checking: 0%", "checking: 20%", "checking: 40%"]
