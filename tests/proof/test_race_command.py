"""`gearshift race` on servers that want a key, lack seats or give different answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gearshift.engine.protocol import EngineEvent, Generation
from tests.scripted import ScriptedEngine
from tests.server.running import running


def race(url: str, *arguments: str, key: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "GEARSHIFT_API_KEY"}
    if key is not None:
        environment["GEARSHIFT_API_KEY"] = key
    command = [sys.executable, "-m", "gearshift", "race", "--url", url, "--load", "0", "--max-tokens", "6", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


class ErringEngine(ScriptedEngine):
    """Loses the last token in one gear."""

    async def generate(self, generation: Generation) -> AsyncGenerator[Sequence[EngineEvent], None]:
        most = generation.sampling.max_tokens
        if generation.gear == "priority" and most is not None:
            generation = replace(generation, sampling=replace(generation.sampling, max_tokens=most - 1))
        async for batch in super().generate(generation):
            yield batch


@pytest.mark.parametrize("key", [None, "wrong"])
def test_a_server_with_keys_says_where_to_put_one(key: str | None) -> None:
    with running(keys=("sesame",)) as server:
        refused = race(server.url, "hello", key=key)
        opened = race(server.url, "hello", key="sesame")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Put one of the server's keys into GEARSHIFT_API_KEY." in refused.stderr
    assert opened.returncode == 0
    assert "identical: 6 tokens" in opened.stdout


def test_a_gear_without_seats_is_told_beside_the_others() -> None:
    with running(ScriptedEngine(only_gear="standard")) as server:
        ran = race(server.url, "hello")
    assert ran.returncode == 1
    assert "priority: All seats of the gear priority are taken. Again in 4 s." in ran.stdout
    assert "standard is through: 6 tokens" in ran.stdout


def test_a_prompt_comes_from_a_file_or_from_the_line(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("hello there", encoding="utf-8")
    with running() as server:
        assert race(server.url, "--file", str(file)).returncode == 0
        both = race(server.url, "hello", "--file", str(file))
        file.write_bytes(b"\xff\xfe\xff")
        broken = race(server.url, "--file", str(file))
    assert (both.returncode, "one of the two" in both.stderr) == (1, True)
    assert (broken.returncode, str(file) in broken.stderr) == (1, True)


def test_another_answer_in_one_gear_ends_with_1() -> None:
    with running(ErringEngine()) as server:
        ran = race(server.url, "hello")
    assert ran.returncode == 1
    assert "DIFFERENT: standard and priority part at character" in ran.stdout
