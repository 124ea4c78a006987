"""Races over a scripted server: what the columns hold, what the verdict says, and that nothing is left running."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from gearshift.proof.client import Ask, Client, Counts, GearWork, Piece, Unreachable
from gearshift.proof.race import Column, Race
from gearshift.proof.race_report import draw, markdown, table
from gearshift.proof.race_view import LiveView, PlainView, answer_text, status
from tests.scripted import ScriptedEngine
from tests.server.running import running

ASK = Ask("scripted", "with drafts", max_tokens=8)


def nobody(column: Column) -> None:
    """A view for nobody."""


async def raced(url: str, ask: Ask = ASK, load: int = 0) -> Race:
    async with Client(url) as client:
        race = Race(client, ask, load)
        await race.run(nobody)
        return race


def test_all_gears_run_cold_and_say_the_same() -> None:
    with running() as server:
        race = asyncio.run(raced(server.url))
        assert {g.gear for g in server.engine.seen} == {"standard", "priority", "ultrafast"}
        assert {g.drafts for g in server.engine.seen} == {"cold"}
    assert race.verdict().identical
    assert race.verdict().sentence == "identical: 8 tokens in standard and priority and ultrafast"
    standard, _, ultrafast = race.columns
    assert standard.work.kept == 0 < ultrafast.work.kept
    assert sum(chunk.tokens for chunk in ultrafast.chunks) == 8
    assert sum(chunk.kept for chunk in ultrafast.chunks) == ultrafast.work.kept
    assert ultrafast.first_s is not None
    assert ultrafast.price > standard.price


def test_a_gear_without_seats_says_so_in_its_column() -> None:
    with running(ScriptedEngine(only_gear="standard")) as server:
        race = asyncio.run(raced(server.url))
    assert [column.fault is None for column in race.columns] == [True, False, False]
    assert "All seats of the gear ultrafast are taken" in status(race.columns[2])
    assert not race.verdict().identical
    assert "fewer than two" in race.verdict().sentence


def test_the_load_runs_before_the_race_and_ends_with_it() -> None:
    with running(ScriptedEngine(pause_s=0.001, window=100_000)) as server:
        race = asyncio.run(raced(server.url, load=3))
        seen = [generation.drafts for generation in server.engine.seen]
        assert race.verdict().identical
        server.wait_settled(len(seen))
        assert sum(usage.ending == "cancelled" for _, _, usage in server.settled) == 3
        assert [g.gear for g in server.engine.seen[:3]] == ["standard"] * 3
        assert server.engine.running == 0


def test_an_interrupted_race_leaves_nothing_running() -> None:
    async def interrupted(url: str) -> None:
        task = asyncio.create_task(raced(url, Ask("scripted", "forever", max_tokens=1 << 20), load=2))
        while len(server.engine.seen) < 5:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with running(ScriptedEngine(pause_s=0.001, window=100_000)) as server:
        asyncio.run(interrupted(server.url))
        server.wait_settled(5)
        assert {usage.ending for _, _, usage in server.settled} == {"cancelled"}


def test_without_a_server_a_race_ends_at_once() -> None:
    with pytest.raises(Unreachable):
        asyncio.run(raced("http://127.0.0.1:1", load=2))


def race_of(texts: list[str], ends: list[str]) -> Race:
    """A race that is over, with these answers."""
    race = Race(Client("http://127.0.0.1:1"), ASK, 0)
    for column, text, end in zip(race.columns, texts, ends, strict=True):
        for at, letter in enumerate(text):
            work = GearWork(column.gear, at + 1, at + 1, 0, at // 2 if column.gear == "ultrafast" else 0)
            column.take(Piece(float(at + 1), letter, Counts(3, at + 1, work)))
        column.ending, column.over = end, True
    return race


def test_the_first_difference_is_shown() -> None:
    race = race_of(["abcdef", "abcdef", "abcxef"], ["stop"] * 3)
    assert race.verdict().sentence == "DIFFERENT: standard and ultrafast part at character 3: 'abcdef' against 'abcxef'"
    assert not race.verdict().identical
    shorter = race_of(["abcdef", "abcd", "abcdef"], ["stop"] * 3).verdict()
    assert "standard and priority part at character 4" in shorter.sentence
    ending = race_of(["abc"] * 3, ["stop", "stop", "length"]).verdict()
    assert (ending.identical, "endings: stop against length" in ending.sentence) == (False, True)


def test_rates_count_tokens_after_the_first_event() -> None:
    column = race_of(["abcd"] * 3, ["stop"] * 3).columns[0]
    assert column.rate == pytest.approx(1.0)
    assert column.first_s == pytest.approx(1.0)
    assert Column("standard").rate is None


def test_blocks_are_tinted_in_turn() -> None:
    text = answer_text(race_of(["abcdef"] * 3, ["stop"] * 3).columns[2])
    assert text.plain == "abcdef"
    assert [(span.start, span.end) for span in text.spans] == [(2, 3), (4, 5)]
    assert len({span.style for span in text.spans}) == 2


def test_reports_hold_every_gear(tmp_path: Path) -> None:
    race = race_of(["ab```c"] * 3, ["stop"] * 3)
    picture = tmp_path / "race.png"
    draw(race, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    page = markdown(race, picture)
    assert "**identical: 6 tokens" in page
    assert "````text\nab```c\n````" in page
    for gear in ("standard", "priority", "ultrafast"):
        assert gear in table(race.columns)
        assert f"| {gear} |" in page


def test_frames_fit_the_terminal() -> None:
    race = race_of(["word " * 200, "漢字🙂" * 100, "\n" * 100], ["stop"] * 3)
    race.columns[1].fault = "All seats are taken."
    console = Console(width=120, height=30, file=io.StringIO(), record=True)
    console.print(LiveView(race, console).frame())
    lines = console.export_text().splitlines()
    assert len(lines) < 30
    assert max(map(cell_len, lines)) <= 120
    assert "All seats are taken." in "".join(lines)
    assert sum("word word" in line for line in lines) > 5


def test_a_tiny_terminal_is_no_reason_to_fail() -> None:
    console = Console(width=10, height=3, force_terminal=True, file=io.StringIO())
    race = race_of(["word " * 200, "漢字🙂" * 100, ""], ["stop"] * 3)

    async def show() -> None:
        async with LiveView(race, console).shown():
            await asyncio.sleep(0)

    asyncio.run(show())
    assert isinstance(console.file, io.StringIO)
    assert "scripted" in console.file.getvalue()


def test_lines_say_when_a_gear_is_through() -> None:
    race = race_of(["abc"] * 3, ["stop"] * 3)
    console = Console(width=40, record=True, file=io.StringIO())

    async def show() -> None:
        view = PlainView(race, console)
        async with view.shown():
            for column in race.columns:
                view.moved(column)

    asyncio.run(show())
    assert console.export_text().count("is through: 3 tokens") == 3
