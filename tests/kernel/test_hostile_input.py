"""Wrong arguments of the kernel's binding are refused with a message that names them, and never crash the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.hostile_cases import CASES
from tests.kernel.running import Loaded
from tests.models_for_tests.synthetic import VARIANTS, Synthetic

ROOT = Path(__file__).parents[2]

# What the binding layer says about an argument of a wrong kind (dtype, dimensions, not a number at all).
WRONG_KIND = "TypeError"
TOO_LARGE = ("MemoryError", "OverflowError")


@pytest.fixture(scope="module")
def outcomes(
    synthetic_model: Callable[[Synthetic], tuple[Path, Loaded]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Outcome of every case; the case that a crash came in is recorded as such."""
    path, _ = synthetic_model(VARIANTS["llama"])
    finished = subprocess.run(
        [sys.executable, "-m", "tests.kernel.hostile_cases", str(path)],
        cwd=ROOT,
        env={"GEARSHIFT_HOME": str(tmp_path_factory.mktemp("home")), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    found: dict[str, str] = {}
    for line in finished.stdout.splitlines():
        name, _, outcome = line.partition("\t")
        found[name] = outcome or f"CRASHED, exit status {finished.returncode}: {finished.stderr[-2000:]}"
    assert found, finished.stderr
    return found


@pytest.mark.parametrize("name", CASES)
def test_wrong_input_is_refused(name: str, outcomes: dict[str, str]) -> None:
    outcome = outcomes.get(name, "not reached: an earlier case crashed")
    kind, _, message = outcome.partition(": ")
    assert kind in ("ValueError", WRONG_KIND, *TOO_LARGE), outcome
    assert "OTHER BITS" not in outcome, outcome
    if kind == "ValueError":
        assert len(message) > 10, f"the message says too little: {message!r}"
