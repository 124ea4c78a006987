"""`gearshift serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from gearshift.cli.shown import AcceptTerms, ShownProgress, acceptance, fail


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(envvar="GEARSHIFT_MODEL", help="A known name or a GGUF file; repeat it to serve several."),
    ] = None,
    host: Annotated[str, typer.Option(envvar="GEARSHIFT_HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="GEARSHIFT_PORT", min=0, max=65535, help="0 picks a free one.")] = 8000,
    cache_tokens: Annotated[
        int | None,
        typer.Option(
            envvar="GEARSHIFT_CACHE_TOKENS", min=1, max=1 << 29, help="Cache of each model; by default by free memory."
        ),
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
    """Serve models until a signal. Callers need a key of GEARSHIFT_API_KEYS or of an account, if there are any."""
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
            accept=acceptance(accept_terms),
            drain_s=drain_s,
        )
    except (CannotServe, BadModelFile, CacheProblem, DownloadFailed, UnknownModel, ValueError) as error:
        shown.close()
        fail(error)
