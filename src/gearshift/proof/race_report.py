"""A race on paper: a table, a picture of tokens over time, and a page in Markdown that holds both."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gearshift import __version__
from gearshift.proof.race import Column, Race

_HEADS = ("gear", "tokens", "tok/s", "first token, s", "drafted", "kept", "rows", "steps", "price")


def rows(columns: Sequence[Column]) -> list[tuple[str, ...]]:
    """The figures of every gear, the heads first."""
    return [_HEADS, *(_row(column) for column in columns)]


def table(columns: Sequence[Column]) -> str:
    """The figures as aligned text."""
    cells = rows(columns)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(w) if at else cell.ljust(w) for at, (cell, w) in enumerate(zip(line, widths, strict=True)))
        for line in cells
    )


def markdown(race: Race, picture: Path | None) -> str:
    """The page. `picture` is linked as it is."""
    ask, (heads, *lines) = race.ask, rows(race.columns)
    seed = "" if ask.seed is None else f", seed {ask.seed}"
    parts = [
        f"# A race of gears on {ask.model}",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, gearshift {__version__}, client on {platform.machine()}. The same "
        "turn in all gears at once, cold (no gear drafts from another's answer), up to "
        f"{ask.max_tokens} tokens, temperature {ask.temperature:g}{seed}, beside {race.load} streams in the standard "
        "gear.",
        "\n".join([_line(heads), _line(["---"] + ["---:"] * (len(heads) - 1)), *map(_line, lines)]),
        f"**{race.verdict().sentence}**",
    ]
    parts += [f"{column.gear}: {column.fault}" for column in race.columns if column.fault]
    if picture is not None:
        parts.append(f"![Tokens over time]({picture.as_posix()})")
    parts += ["## Prompt", _fenced(ask.prompt), "## Answer", _fenced(race.columns[0].text)]
    return "\n\n".join(parts) + "\n"


def draw(race: Race, file: Path) -> None:
    """Tokens over time, a line for every gear, as a PNG file."""
    # Slow to import, and needed by nobody else.
    from matplotlib.figure import Figure

    # Any, since the library's own types are partly unknown.
    figure: Any = Figure(figsize=(8, 4.5), layout="constrained")
    axes: Any = figure.add_subplot()
    for column in race.columns:
        if column.arrivals:
            times, tokens = zip(*column.arrivals, strict=True)
            rate = "" if column.rate is None else f", {column.rate:.0f} tok/s"
            axes.step((0.0, *times), (0, *tokens), where="post", label=f"{column.gear}{rate}")
    axes.set_xlabel("seconds since the turn was sent")
    axes.set_ylabel("tokens")
    axes.set_title(f"{race.ask.model}, {race.load} other streams: {race.verdict().sentence.partition(':')[0]} answers")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()
    figure.savefig(file, dpi=150, format="png")


def _row(column: Column) -> tuple[str, ...]:
    work = column.work
    counts = (column.counts.completion_tokens, work.drafted, work.kept, work.rows, work.steps)
    tokens, drafted, kept, done, steps = map(str, counts)
    rate = "-" if column.rate is None else f"{column.rate:.1f}"
    first = "-" if column.first_s is None else f"{column.first_s:.3f}"
    return (column.gear, tokens, rate, first, drafted, kept, done, steps, f"×{column.price:g}")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
