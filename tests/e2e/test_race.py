"""`gearshift race` as a user runs it, against the real model behind the real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.started import Started

PROMPT = "def add(a, b):\n    return a + b\n\n\n" * 3 + "def add(a, b):\n"


def race(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gearshift", "race", "--url", url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_all_gears_say_the_same_beside_other_streams(server: Started, tmp_path: Path) -> None:
    file, page, picture = tmp_path / "prompt.txt", tmp_path / "race.md", tmp_path / "race.png"
    file.write_text(PROMPT)
    arguments = ("--file", str(file), "--raw", "--load", "2", "--max-tokens", "48", "--temperature", "0.7")
    ran = race(*arguments, "--report", str(page), "--png", str(picture), url=server.url)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "identical: 48 tokens in standard and priority and ultrafast" in ran.stdout
    assert ran.stdout.count("is through") == 3
    assert "seed" in ran.stdout
    assert "| ultrafast |" in page.read_text()
    assert picture.stat().st_size > 1000


def test_mistakes_are_one_line_each(server: Started) -> None:
    for arguments, says in (
        (("hi", "--model", "gpt-17"), "has no model 'gpt-17'; it has smollm2-135m-instruct"),
        ((), "give a prompt or --file"),
    ):
        ran = race(*arguments, url=server.url)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert says in ran.stderr
        assert ran.stderr.count("\n") == 1
    away = race("hi", url="http://127.0.0.1:1")
    assert (away.returncode, "make serve" in away.stderr) == (1, True)


def test_an_interrupted_race_leaves_the_server_idle(server: Started) -> None:
    command = [
        sys.executable,
        "-m",
        "gearshift",
        "race",
        "--url",
        server.url,
        "--load",
        "2",
        "--max-tokens",
        "4000",
        "Go.",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    with process.stdout:
        assert "beside 2 other streams" in process.stdout.readline()
        while not server.metrics()["gearshift_running"]:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    while server.metrics()["gearshift_running"]:
        time.sleep(0.05)
