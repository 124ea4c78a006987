"""`gearshift race`."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gearshift.cli.shown import fail

if TYPE_CHECKING:
    from gearshift.proof.client import Ask
    from gearshift.proof.race import Race

_NEEDS_KEY = 401


def race(
    prompt: Annotated[str | None, typer.Argument(help="What to say in all gears.")] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Take the prompt from this file.")
    ] = None,
    url: Annotated[str, typer.Option(envvar="GEARSHIFT_URL", help="The server.")] = "http://127.0.0.1:8000",
    model: Annotated[str | None, typer.Option(help="One of the server's models; by default its first.")] = None,
    load: Annotated[int, typer.Option(min=0, max=1000, help="Streams in the standard gear that run meanwhile.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0 always takes the likeliest token.")] = 0.0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the sampling; drawn, and shown, when there is none.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="The prompt is the model's whole text, not a chat message.")
    ] = False,
    png: Annotated[Path | None, typer.Option(dir_okay=False, help="Draw tokens over time into this file.")] = None,
    report: Annotated[Path | None, typer.Option(dir_okay=False, help="Write a page in Markdown.")] = None,
) -> None:
    """Run one turn in all gears at once on a running server and watch them. Tinted text came as a block, from drafts.
    Every gear guesses from the prompt and its own answer only, so that none profits from another. Ends with 0 when all
    gears gave the same answer. A server with keys needs one of them in GEARSHIFT_API_KEY.
    """
    from gearshift.proof.client import Ask, Refused, Unreachable

    if (prompt is None) == (file is None):
        fail("give a prompt or --file, one of the two")
    try:
        said = prompt if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file}: {error}")
    if not said:
        fail("the prompt is empty")
    for written in (png, report):
        if written is not None and not written.parent.is_dir():
            fail(f"{written}: there is no folder {written.parent}; make it, or write elsewhere")
    if temperature > 0 and seed is None:
        seed = secrets.randbelow(2**31)
    ask = Ask(model or "", said or "", raw=raw, max_tokens=max_tokens, temperature=temperature, seed=seed)
    try:
        raced = asyncio.run(_raced(url, ask, load))
        _write(raced, png, report)
    except Refused as refused:
        needs = refused.status == _NEEDS_KEY
        fail(f"{refused} Put one of the server's keys into GEARSHIFT_API_KEY." if needs else refused)
    except (Unreachable, OSError) as error:
        fail(error)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(0 if raced.verdict().identical else 1)


async def _raced(url: str, ask: Ask, load: int) -> Race:
    """Run the race and show it."""
    from dataclasses import replace

    from rich.console import Console

    from gearshift.proof.client import Client, Refused
    from gearshift.proof.race import Race
    from gearshift.proof.race_report import table
    from gearshift.proof.race_view import LiveView, PlainView

    async with Client(url, os.environ.get("GEARSHIFT_API_KEY")) as client:
        offered = await client.models()
        if not offered:
            raise Refused(404, f"The server at {client.url} offers no model.")
        if ask.model and ask.model not in offered:
            raise Refused(404, f"The server at {client.url} has no model {ask.model!r}; it has {', '.join(offered)}.")
        race = Race(client, replace(ask, model=ask.model or offered[0]), load)
        console = Console()
        view = LiveView(race, console) if console.is_terminal else PlainView(race, console)
        async with view.shown():
            await race.run(view.moved)
    print(table(race.columns))
    for column in race.columns:
        if column.fault is not None:
            print(f"{column.gear}: {column.fault}")
    print(race.verdict().sentence)
    return race


def _write(race: Race, png: Path | None, report: Path | None) -> None:
    from gearshift.proof.race_report import draw, markdown

    if png is not None:
        draw(race, png)
    if report is not None:
        picture = None if png is None else Path(os.path.relpath(png, report.parent))
        report.write_text(markdown(race, picture), encoding="utf-8")
    for written in (png, report):
        if written is not None:
            print(f"written: {written}", file=sys.stderr)
