"""`gearshift codex`: the configuration that makes Codex use a Gearshift server, shown, written, or tried at once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from gearshift.cli.shown import fail

app = typer.Typer(help="Use a Gearshift server from Codex.", invoke_without_command=True)

_URL = "http://127.0.0.1:8000"

Url = Annotated[str, typer.Option(envvar="GEARSHIFT_URL", help="Where the server is.")]
KeyEnv = Annotated[
    str | None, typer.Option(metavar="NAME", help="Environment variable with the API key, if the server needs one.")
]


@app.callback()
def show(
    context: typer.Context,
    url: Url = _URL,
    key_env: KeyEnv = None,
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write DIR/config.toml instead of printing it.")
    ] = None,
) -> None:
    """Print the config.toml that makes Codex use this server."""
    if context.invoked_subcommand is not None:
        return
    text = _configuration(url, key_env)
    if write is None:
        print(text, end="")
    else:
        _write(write, text)
        print(f"Wrote {write / 'config.toml'}. Start Codex with: CODEX_HOME={write.resolve()} codex")


@app.command()
def run(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="-- ARGS", help="What Codex is told.")] = None,
    url: Url = _URL,
    key_env: KeyEnv = None,
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Codex's folder; by default one of Gearshift's own, so that yours stays."),
    ] = None,
) -> None:
    """Start Codex on the server, for instance `gearshift codex run -- exec "Say hello"`."""
    from gearshift.engine.local.home import CacheProblem
    from gearshift.engine.local.home import home as cache_folder
    from gearshift.wire.codex_config import overrides

    text = _configuration(url, key_env)
    program = shutil.which("codex")
    if program is None:
        fail("There is no `codex` on the PATH. Install it with `npm install -g @openai/codex`.")
    try:
        folder = home or cache_folder() / "codex"
    except CacheProblem as error:
        fail(error)
    if not (folder / "config.toml").exists():
        _write(folder, text)
    # What the file says of the server may be of another day; what is said here goes before it.
    options = [part for override in overrides(url, key_env) for part in ("-c", override)]
    os.execve(program, [program, *options, *(arguments or [])], os.environ | {"CODEX_HOME": str(folder.resolve())})


def _configuration(url: str, key_env: str | None) -> str:
    from gearshift.wire.codex_config import BadAddress, configuration

    try:
        return configuration(url, key_env)
    except BadAddress as error:
        fail(error)


def _write(folder: Path, text: str) -> None:
    path = folder / "config.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        fail(f"{path} is there already. Name another folder, or move it away first.")
    except OSError as error:
        fail(f"Cannot write {path}: {error.strerror}.")
