"""The `gearshift` command. Every subject has a module of its own here; a command brings in what it needs when it runs,
so that none waits for what only others need. What commands do is in the rooms below.
"""

from __future__ import annotations

import typer

from gearshift.cli import accounts, codex, keys, models, proving, racing, serving, simulating

app = typer.Typer(
    help="Serve coding models over the OpenAI API.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serving.serve)
app.command("race")(racing.race)
app.command("simulate")(simulating.simulate)
app.command("prove")(proving.prove)
app.add_typer(models.app, name="models")
app.add_typer(codex.app, name="codex")
app.add_typer(accounts.app, name="accounts")
app.add_typer(keys.app, name="keys")


def main() -> None:
    """The entry point."""
    app()


@app.command()
def version() -> None:
    """Show the version."""
    from gearshift import __version__

    print(f"gearshift {__version__}")
