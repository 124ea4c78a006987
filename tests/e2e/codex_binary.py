"""The real Codex: on the PATH, or where `.ci/run` puts it. Tests that need it are skipped, loudly, where it is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.started import ROOT

VERSION = "0.171.0"
_INSTALLED = ROOT / ".venv" / "codex" / "node_modules" / ".bin"

Event = dict[str, Any]


def codex_folder() -> Path:
    """The folder of the program; skips the test when there is none."""
    found = shutil.which("codex", path=f"{_INSTALLED}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"no Codex here; run: npm install --prefix .venv/codex @openai/codex@{VERSION}")
    return Path(found).parent


def codex_exec(url: str, home: Path, *arguments: str) -> tuple[list[Event], str]:
    """Run `gearshift codex run -- exec` in an empty folder: its events, and what it said beside them."""
    folder = codex_folder()
    work = home / "work"
    work.mkdir(exist_ok=True)
    gearshift = [sys.executable, "-m", "gearshift", "codex", "run", "--url", url, "--home", str(home / "codex")]
    done = subprocess.run(
        [*gearshift, "--", "exec", "--skip-git-repo-check", "--json", *arguments],
        cwd=work,
        env=os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines], done.stderr
