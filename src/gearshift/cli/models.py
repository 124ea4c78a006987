"""`gearshift models`: what one command can bring."""

from __future__ import annotations

import typer

from gearshift.cli.shown import AcceptTerms, ShownProgress, acceptance, fail

app = typer.Typer(help="Models that one command can bring.", no_args_is_help=True)


@app.command("list")
def list_models() -> None:
    """Show the models that are known by name, and which of them are here."""
    from gearshift.engine.local.download import offers
    from gearshift.engine.local.home import CacheProblem

    try:
        found = offers()
    except CacheProblem as error:
        fail(error)
    for offer in found:
        source = offer.source
        where = str(offer.path) if offer.path else f"not here yet, {source.download_bytes / 1e6:,.0f} MB to fetch"
        print(f"{source.name}\n  {source.about}\n  {source.licence}\n  {where}")


@app.command("add")
def add_model(name: str, accept_terms: AcceptTerms = False) -> None:
    """Fetch a model by name, check it and keep it in the cache folder."""
    from gearshift.engine.local.download import DownloadFailed, UnknownModel, fetch
    from gearshift.engine.local.home import CacheProblem

    shown = ShownProgress()
    try:
        path = fetch(name, shown, acceptance(accept_terms))
    except (CacheProblem, DownloadFailed, UnknownModel) as error:
        shown.close()
        fail(error)
    shown.close()
    print(f"{name} is here: {path}")
