"""`gearshift codex`: printed, written once, and started with what it needs."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gearshift.cli import app

CODEX = """#!/bin/sh
echo "home $CODEX_HOME"
for argument in "$@"; do echo "argument $argument"; done
"""


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["codex", *arguments])
    return result.exit_code, result.output


def test_the_configuration_is_printed() -> None:
    code, text = invoke("--url", "http://127.0.0.1:9000")
    assert code == 0
    assert tomllib.loads(text)["model_providers"]["gearshift"]["base_url"] == "http://127.0.0.1:9000/v1"


def test_it_is_written_and_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "home"
    code, text = invoke("--write", str(folder))
    assert code == 0
    assert f"CODEX_HOME={folder}" in text
    written = (folder / "config.toml").read_text()
    assert tomllib.loads(written)["model_provider"] == "gearshift"
    (folder / "config.toml").write_text("mine = true")
    code, text = invoke("--write", str(folder))
    assert code == 1
    assert "is there already" in text
    assert (folder / "config.toml").read_text() == "mine = true"


def test_what_cannot_be_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = invoke("--url", "nowhere")
    assert (code, text.count("\n")) == (1, 1)
    (tmp_path / "file").write_text("")
    code, text = invoke("--write", str(tmp_path / "file"))
    assert (code, text.count("\n")) == (1, 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, text = invoke("run", "--", "exec", "hi")
    assert code == 1
    assert "npm install -g @openai/codex" in text


def test_codex_is_started_in_a_folder_of_its_own(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text(CODEX)
    program.chmod(0o755)
    home = tmp_path / "home"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # the command replaces its process
        os.dup2(writing, 1)
        os.environ["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        try:
            app(["codex", "run", "--url", "http://h:1", "--home", str(home), "--", "exec", "-c", "x=1", "hi"])
        finally:
            os._exit(9)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lines[0] == f"home {home}"
    assert 'argument model_providers.gearshift.base_url="http://h:1/v1"' in lines
    assert lines[-4:] == ["argument exec", "argument -c", "argument x=1", "argument hi"]
    assert (home / "config.toml").exists()
