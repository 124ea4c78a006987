"""Codex as a person uses it: `/fast` and `/ultrafast` change the gear of the next turn, Esc ends one at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gearshift.catalog import GearName
from gearshift.conversation import Conversation, Message
from gearshift.engine.protocol import Generation
from tests.e2e.codex_binary import codex_folder
from tests.e2e.terminal import on_terminal
from tests.scripted import ScriptedEngine
from tests.server.running import running


def asks(generation: Generation, text: str) -> bool:
    """Whether this is a turn whose newest message is this one; the job that names the session quotes the first."""
    prompt = generation.prompt
    return isinstance(prompt, Conversation) and prompt.items[-1] == Message("user", text)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # a fork for the terminal, from a quiet process
def test_commands_shift_gears_and_esc_interrupts(tmp_path: Path) -> None:
    folder = codex_folder()
    work = tmp_path / "work"
    work.mkdir()
    path = f"{folder}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "HOME": str(tmp_path), "TERM": "xterm-256color"}
    engine = ScriptedEngine(window=1 << 20)

    def gear_of_turn(text: str) -> GearName | None:
        return next((seen.gear for seen in engine.seen if asks(seen, text)), None)

    with running(engine) as server:
        home = str(tmp_path / "codex")
        command = [sys.executable, "-m", "gearshift", "codex", "run", "--url", server.url, "--home", home]
        trusted = f'projects."{work}".trust_level="trusted"'
        with on_terminal([*command, "--", "-c", trusted], work, environment) as terminal:
            terminal.until(lambda: "scripteddefault" in terminal.text)
            terminal.enter("hello")
            terminal.until(lambda: gear_of_turn("hello") is not None)
            assert gear_of_turn("hello") == "standard"
            terminal.enter("/ultrafast")
            terminal.until(lambda: "Servicetiersettoultrafast" in terminal.text)
            terminal.enter("again")
            terminal.until(lambda: gear_of_turn("again") is not None)
            assert gear_of_turn("again") == "ultrafast"
            terminal.enter("/fast")
            terminal.until(lambda: "Servicetiersettopriority" in terminal.text)
            engine.pause_s = 0.05
            terminal.enter("go on forever")
            terminal.until(lambda: gear_of_turn("go on forever") is not None)
            assert gear_of_turn("go on forever") == "priority"
            terminal.until(lambda: engine.running == 1)
            terminal.press(b"\x1b")
            terminal.until(lambda: server.settled[-1][2].ending == "cancelled")
            assert engine.running == 0
        assert len({turn_id for turn_id, _, _ in server.settled}) == len(server.settled)
