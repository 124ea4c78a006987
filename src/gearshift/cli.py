"""The `gearshift` command: serve, models, version. A command brings in what it needs when it runs, so that none waits
for what only others need. What commands do is in the rooms below.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from gearshift.catalog.sources import Source

app = typer.Typer(
    help="Serve coding models over the OpenAI API.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
models_app = typer.Typer(help="Models that one command can bring.", no_args_is_help=True)
app.add_typer(models_app, name="models")

AcceptTerms = Annotated[
    bool, typer.Option("--accept-terms", envvar="GEARSHIFT_ACCEPT_TERMS", help="Accept the terms of the models.")
]


def main() -> None:
    """The entry point."""
    app()


@app.command()
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(envvar="GEARSHIFT_MODEL", help="A known name or a GGUF file; repeat it to serve several."),
    ] = None,
    host: Annotated[str, typer.Option(envvar="GEARSHIFT_HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="GEARSHIFT_PORT", min=0, max=65535, help="0 picks a free one.")] = 8000,
    cache_tokens: Annotated[
        int | None,
        typer.Option(envvar="GEARSHIFT_CACHE_TOKENS", min=1, help="Cache of each model; by default by free memory."),
    ] = None,
    max_streams: Annotated[
        int, typer.Option(envvar="GEARSHIFT_MAX_STREAMS", min=1, help="Sequences of one model that run at once.")
    ] = 64,
    threads: Annotated[
        int | None, typer.Option(envvar="GEARSHIFT_THREADS", min=1, help="Kernel threads; by default by cores.")
    ] = None,
    drain_s: Annotated[
        int, typer.Option(envvar="GEARSHIFT_DRAIN_S", min=0, help="Seconds that running streams get at the end.")
    ] = 30,
    accept_terms: AcceptTerms = False,
) -> None:
    """Serve models until a signal. GEARSHIFT_API_KEYS holds the keys that callers need, if any."""
    from gearshift.catalog.sources import DEFAULT_MODEL
    from gearshift.engine.local.download import DownloadFailed, UnknownModel
    from gearshift.engine.local.gguf_values import BadModelFile
    from gearshift.engine.local.home import CacheProblem
    from gearshift.engine.local.load import EngineOptions
    from gearshift.server.lifecycle import Address, CannotServe, allowed_hosts_from_environment
    from gearshift.server.start import start

    shown = ShownProgress()
    try:
        start(
            model or [DEFAULT_MODEL],
            Address(host, port, allowed_hosts_from_environment()),
            EngineOptions(max_streams=max_streams, cache_tokens=cache_tokens, threads=threads),
            progress=shown,
            loaded=shown.close,
            accept=_acceptance(accept_terms),
            drain_s=drain_s,
        )
    except (CannotServe, BadModelFile, CacheProblem, DownloadFailed, UnknownModel, ValueError) as error:
        shown.close()
        _fail(error)


@models_app.command("list")
def list_models() -> None:
    """Show the models that are known by name, and which of them are here."""
    from gearshift.engine.local.download import offers

    for offer in offers():
        source = offer.source
        where = str(offer.path) if offer.path else f"not here yet, {source.download_bytes / 1e6:,.0f} MB to fetch"
        print(f"{source.name}\n  {source.about}\n  {source.licence}\n  {where}")


@models_app.command("add")
def add_model(name: str, accept_terms: AcceptTerms = False) -> None:
    """Fetch a model by name, check it and keep it in the cache folder."""
    from gearshift.engine.local.download import DownloadFailed, UnknownModel, fetch
    from gearshift.engine.local.home import CacheProblem

    shown = ShownProgress()
    try:
        path = fetch(name, shown, _acceptance(accept_terms))
    except (CacheProblem, DownloadFailed, UnknownModel) as error:
        shown.close()
        _fail(error)
    shown.close()
    print(f"{name} is here: {path}")


@app.command()
def version() -> None:
    """Show the version."""
    from gearshift import __version__

    print(f"gearshift {__version__}")


class ShownProgress:
    """Progress for the user: bars on a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last = ("", 0.0)

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
        last, at = self._last
        now = time.monotonic()
        if what != last or now - at > 5 or done >= total:
            self._last = (what, now)
            print(f"{what}: {done / max(total, 1):.0%}", file=sys.stderr, flush=True)


def _acceptance(accepted: bool):
    """How terms of use are accepted: by the option, or by a person at the terminal."""

    def accept(source: Source) -> bool:
        print(f"{source.name} is offered under the {source.licence}: {source.terms}", file=sys.stderr)
        return accepted or (sys.stdin.isatty() and typer.confirm("Have you read them, and do you accept?"))

    return accept


def _fail(error: Exception) -> NoReturn:
    print(f"gearshift: {error}", file=sys.stderr)
    raise typer.Exit(1)
