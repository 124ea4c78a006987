"""A race as a person sees it: three columns that fill up on a terminal, or lines of text where there is none.

Text that arrived as a block, because drafts were accepted, is tinted; the tints alternate, so that every block is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gearshift.proof.race import Column, Race

_FRAMES_PER_S = 12
_LINES_EVERY_S = 2.0
_TINTS = ("black on bright_cyan", "black on bright_magenta")
_LEAST_WIDTH, _LEAST_HEIGHT = 24, 10
_MOST_TAIL = 20_000
"""Characters of an answer that a panel is made from; no terminal shows more."""


class LiveView:
    """Columns on a terminal."""

    def __init__(self, race: Race, console: Console) -> None:
        self._race = race
        self._console = console

    def moved(self, column: Column) -> None:
        """Nothing: frames are drawn at their own pace, whatever the pace of tokens."""

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Draw frames while the block runs, and a last one."""
        # Not redrawn by a thread of its own: that would take the interpreter from the reading at any time.
        with Live(self.frame(), console=self._console, auto_refresh=False, transient=False) as live:
            drawing = asyncio.create_task(self._draw(live))
            try:
                yield
            finally:
                drawing.cancel()
                live.update(self.frame(), refresh=True)

    def frame(self) -> Group:
        """All columns as they are now, as large as the terminal."""
        columns = self._race.columns
        height = max(_LEAST_HEIGHT, self._console.height - 2)
        width = max(_LEAST_WIDTH, self._console.width // len(columns))
        grid = Table.grid()
        for _ in columns:
            grid.add_column(width=width)
        grid.add_row(*(_panel(column, width, height) for column in columns))
        return Group(Text(_heading(self._race), no_wrap=True, overflow="ellipsis"), grid)

    async def _draw(self, live: Live) -> None:
        while True:
            live.update(self.frame(), refresh=True)
            await asyncio.sleep(1 / _FRAMES_PER_S)


class PlainView:
    """Lines of text: how far every gear is, now and then."""

    def __init__(self, race: Race, console: Console) -> None:
        self._race = race
        self._console = console
        self._told = 0.0

    def moved(self, column: Column) -> None:
        """Say when a gear is through, and how far all are every few seconds."""
        now = time.monotonic()
        if column.over:
            self._say(f"{column.gear} is through: {status(column)}")
        elif now - self._told >= _LINES_EVERY_S:
            self._told = now
            self._say("  ".join(f"{one.gear} {one.counts.completion_tokens} tokens" for one in self._race.columns))

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Say what is about to run."""
        self._told = time.monotonic()
        self._say(_heading(self._race))
        yield

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def status(column: Column) -> str:
    """One line about a gear."""
    if column.fault is not None:
        return column.fault
    work, parts = column.work, [f"{column.counts.completion_tokens} tokens"]
    if column.rate is not None:
        parts.append(f"{column.rate:.0f} tok/s")
    if column.first_s is not None:
        parts.append(f"first after {column.first_s:.2f} s")
    parts += [f"drafts kept {work.kept} of {work.drafted}", f"{work.rows} rows in {work.steps} steps"]
    return ", ".join([*parts, f"price ×{column.price:g}"])


def answer_text(column: Column) -> Text:
    """The end of the answer, blocks tinted."""
    text, blocks, length = Text(), 0, 0
    tail: list[tuple[str, str]] = []
    for chunk in column.chunks:
        blocks += chunk.kept > 0
        tail.append((chunk.text, _TINTS[blocks % len(_TINTS)] if chunk.kept else ""))
    start = len(tail)
    while start and length < _MOST_TAIL:
        start -= 1
        length += len(tail[start][0])
    for said, style in tail[start:]:
        text.append(said, style)
    return text


def _panel(column: Column, width: int, height: int) -> Panel:
    title = f"{column.gear} ×{column.price:g}"
    if column.fault is not None:
        return Panel(Text(column.fault, "red"), title=title, border_style="red", width=width, height=height)
    work = column.work
    figures = Text(
        f"{column.rate or 0:6.0f} tok/s   first {_seconds(column.first_s)}\n"
        f"{column.counts.completion_tokens} tokens   kept {work.kept}/{work.drafted}   rows {work.rows}",
        "bold",
    )
    inner = width - 4
    # Two borders, two lines of figures and one that parts them from the answer.
    lines = answer_text(column).wrap(Console(width=inner), inner)[-(height - 5) :]
    body = Text("\n").join(lines)
    done = "green" if column.over else "blue"
    return Panel(
        Text("\n").join([figures, Text("─" * inner, "dim"), body]),
        title=title,
        border_style=done,
        width=width,
        height=height,
    )


def _heading(race: Race) -> str:
    ask = race.ask
    chosen = f"temperature {ask.temperature:g}" + (f", seed {ask.seed}" if ask.seed is not None else "")
    return f"{ask.model}, up to {ask.max_tokens} tokens, {chosen}, beside {race.load} other streams"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
