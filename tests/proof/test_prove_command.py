"""`gearshift prove` as a user runs it: an interruption, a signature that is checked, and mistakes in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gearshift.proof.report import PassCounts, Report, Subject
from gearshift.proof.signing import sign, to_json
from tests.models_for_tests.real import SMOLLM2, real_model_file

COMMAND = [sys.executable, "-m", "gearshift", "prove"]


def prove(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signed report of a key of its own."""
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))
    passes = [PassCounts("priority, idle", ["priority"], "cold", 1, 0, drafted=5, kept=2)]
    subject = Subject("m", "a" * 64, "avx2", "b" * 64, 2, "0.1", 3, 20, "c" * 64)
    file = tmp_path / "proof.json"
    file.write_bytes(to_json(sign(Report(subject, "2026-12-01T00:00:00+00:00", passes, 10, 100, complete=True))))
    return file


def test_a_report_is_verified(signed: Path) -> None:
    ran = prove("--verify", str(signed))
    assert ran.returncode == 0, ran.stderr
    assert "verdict: identical" in ran.stdout
    assert "the signature is right; the key is SHA256:" in ran.stdout


def test_a_changed_report_is_not(signed: Path) -> None:
    data = msgspec.json.decode(signed.read_bytes())
    data["report"]["passes"][0]["kept"] = 3
    signed.write_bytes(msgspec.json.encode(data))
    ran = prove("--verify", str(signed))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "the report was changed after it was signed" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--verify", "/nowhere/proof.json"), "No such file"),
        (("--model", "gpt-17"), "is no known model"),
        (("--json", "/nowhere/proof.json"), "/nowhere"),
    ],
)
def test_mistakes_are_one_line_each(arguments: tuple[str, ...], says: str) -> None:
    ran = prove(*arguments)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_an_interrupted_proof_shows_what_it_has(tmp_path: Path) -> None:
    real_model_file(SMOLLM2)
    file = tmp_path / "proof.json"
    process = subprocess.Popen(
        [*COMMAND, "--prompts", "3", "--json", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        for line in process.stderr:
            if line.startswith("priority, idle"):
                break
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.wait() == 130
    assert "verdict: none, interrupted before the end" in said
    assert "anchor" in said
    ran = prove("--verify", str(file))
    assert ran.returncode == 0, ran.stderr
    assert "interrupted" in ran.stdout
