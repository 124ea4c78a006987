"""What commands share towards the user: progress of lasting work, consent to terms, and a failure's one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from gearshift.catalog.sources import Source

_LINE_S = 5.0

AcceptTerms = Annotated[
    bool, typer.Option("--accept-terms", envvar="GEARSHIFT_ACCEPT_TERMS", help="Accept the terms of the models.")
]


class ShownProgress:
    """Progress for the user: bars on a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._lines: dict[str, tuple[float, bool]] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            self._bar(what, done, total)
        else:
            self._line(what, done, total)

    def close(self) -> None:
        """Leave the terminal as a line of text finds it."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _bar(self, what: str, done: int, total: int) -> None:
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bars = Progress(*columns, console=Console(stderr=True))
            self._bars.start()
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done, total=total)

    def _line(self, what: str, done: int, total: int) -> None:
        at, complete = self._lines.get(what, (-_LINE_S, False))
        now = time.monotonic()
        if not complete and (now - at >= _LINE_S or done >= total):
            self._lines[what] = (now, done >= total)
            print(f"{what}: {done / max(total, 1):.0%}", file=sys.stderr, flush=True)


def acceptance(accepted: bool) -> Callable[[Source], bool]:
    """How terms of use are accepted: by the option, or by a person at the terminal."""

    def accept(source: Source) -> bool:
        print(f"{source.name} is offered under the {source.licence}: {source.terms}", file=sys.stderr)
        return accepted or (sys.stdin.isatty() and typer.confirm("Have you read them, and do you accept?"))

    return accept


def fail(error: Exception | str) -> NoReturn:
    """Say what went wrong and end with 1."""
    print(f"gearshift: {error}", file=sys.stderr)
    raise typer.Exit(1)
