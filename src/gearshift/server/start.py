"""The whole start of a local server, in the order that a user wants: refuse at once what cannot work, then load, then
say what is there, then serve.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from gearshift.accounts.places import configured
from gearshift.engine.local.download import Accept
from gearshift.engine.local.engine import LocalEngine
from gearshift.engine.local.home import Progress
from gearshift.engine.local.load import EngineOptions, load
from gearshift.server.greeting import MemoryPart, greeting, resident_bytes, url_of
from gearshift.server.lifecycle import Address, CannotServe, keys_from_environment, listen, serve
from gearshift.server.metrics import Metrics
from gearshift.service import Service

if TYPE_CHECKING:
    from gearshift.accounts.opening import OpenAccounts


def start(
    models: Sequence[str],
    address: Address,
    options: EngineOptions,
    *,
    progress: Progress,
    loaded: Callable[[], None],
    accept: Accept,
    drain_s: int,
) -> None:
    """Serve `models` until a signal.

    progress, accept: see `engine.local.load`. loaded: called when there is no more progress to come.

    Raises:
        CannotServe: the address or the accounts cannot be used.
        What `engine.local.load.load` raises.
    """
    began = time.perf_counter()
    with ExitStack() as until_end:
        accounts = _accounts(until_end)
        keys = keys_from_environment(accounts.directory if accounts else None)
        listener = until_end.enter_context(listen(address, keys))
        url = url_of(address.host, listener.getsockname()[1])
        engine = load(models, options, progress, accept)
        loaded()
        if accounts is not None and (missing := accounts.unpriced([entry.id for entry in engine.models()])):
            raise CannotServe(missing)
        metrics = Metrics([engine])

        def ready() -> None:
            took_s = time.perf_counter() - began
            print(greeting(url, engine.models(), memory_parts(engine), keys=not keys.open, took_s=took_s), flush=True)

        meter, repeats = (accounts.meter, accounts.repeats) if accounts else (None, None)
        service = Service([engine], keys, metrics.settle, meter, repeats)
        serve(service, metrics, listener, address, ready=ready, drain_s=drain_s)


def _accounts(until_end: ExitStack) -> OpenAccounts | None:
    """The accounts, where any are configured. Raises CannotServe."""
    if not configured():
        return None
    # Brings in the database, which an open server does without.
    from gearshift.accounts.opening import CannotServeAccounts, open_accounts

    try:
        accounts = open_accounts()
    except CannotServeAccounts as error:
        raise CannotServe(str(error)) from None
    if accounts is not None:
        until_end.callback(accounts.close)
    return accounts


def memory_parts(engine: LocalEngine) -> list[MemoryPart]:
    """What the engine and the process keep in memory."""
    parts: list[MemoryPart] = []
    for one in engine.resident:
        parts.append(MemoryPart(f"{one.model}: packed weights ({one.isa}, {one.threads} threads)", one.weights_bytes))
        parts.append(MemoryPart(f"{one.model}: cache, {one.cache_tokens:,} tokens when full", one.cache_bytes))
    return [*parts, MemoryPart("this process, now", resident_bytes())]
