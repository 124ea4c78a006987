from __future__ import annotations

import pytest
from benchmarks.gears.__main__ import parse
from benchmarks.gears.turns import KINDS


def test_everything_is_measured_unless_it_is_said_otherwise() -> None:
    options = parse([])
    assert options.kinds == list(KINDS)
    assert (options.load, options.threads, options.rounds, options.model) == (32, 2, None, None)
    assert not options.no_peers


def test_some_kinds_of_one_model_beside_a_smaller_load() -> None:
    options = parse(["--model", "a.gguf", "--kinds", "copy", "fix", "--load", "8", "--rounds", "3", "--no-peers"])
    assert (options.model, options.kinds, options.load, options.rounds) == (["a.gguf"], ["copy", "fix"], 8, 3)


@pytest.mark.parametrize("wrong", [["--load", "0"], ["--rounds", "-1"], ["--threads", "none"], ["--kinds", "poem"]])
def test_counts_and_kinds_that_make_no_sense_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(wrong)
    assert wrong[0] in capsys.readouterr().err
