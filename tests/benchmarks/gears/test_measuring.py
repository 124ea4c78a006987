from __future__ import annotations

import pytest
from benchmarks.gears.measuring import LEAST_TOKENS, Collected, DifferentAnswer, first_of_each
from benchmarks.gears.turns import coding_turns


def test_loops_and_short_answers_do_not_count() -> None:
    found = Collected({turn.name: turn for turn in coding_turns()})
    found.expected = {
        "copy-0": [1, 2] * 50,
        "copy-1": list(range(LEAST_TOKENS - 1)),
        "copy-2": list(range(LEAST_TOKENS)),
        "copy-3": list(range(90)),
        "explain-0": list(range(90)),
        "explain-1": [4] * 5,
    }
    found.sort_out(3)
    assert found.looped == ["copy-0", "explain-1"]
    assert found.short == ["copy-1"]
    assert found.clean == ["copy-2", "copy-3", "explain-0"]
    assert found.one_of_each_kind() == ["copy-2", "explain-0"]


def test_the_first_turns_of_each_kind() -> None:
    turns = {turn.name: turn for turn in coding_turns()}
    assert first_of_each(["copy-0", "fix-1", "copy-2", "copy-3"], turns, 2) == ["copy-0", "copy-2", "fix-1"]


def test_one_different_token_ends_the_run_and_is_named() -> None:
    found = Collected({})
    found.expected = {"copy-0": [1, 2, 3]}
    found.check("copy-0", [1, 2, 3], "priority")
    with pytest.raises(DifferentAnswer, match=r"copy-0, ultrafast: token 1 is \[9\], but \[2\] in standard"):
        found.check("copy-0", [1, 9, 3], "ultrafast")
    with pytest.raises(DifferentAnswer, match=r"token 2 is \[\], but \[3\]"):
        found.check("copy-0", [1, 2], "ultrafast")
    assert found.compared == 3
