"""A metered server over a scripted engine in a process of its own: `python -m tests.server.metered_main URL`."""

from __future__ import annotations

import sys

from gearshift.accounts import KeyRing
from gearshift.accounts.directory import Directory
from gearshift.accounts.ledger import Ledger
from gearshift.accounts.meter import Meter
from gearshift.accounts.repeats import Repeats
from gearshift.accounts.tables import open_database
from gearshift.server.lifecycle import Address, listen, serve
from gearshift.server.metrics import Metrics
from gearshift.service import Service
from tests.accounts.plans_for_tests import hours, main, plan_of, plans_of
from tests.scripted import ScriptedEngine

PLAN = plan_of(main(hours(10)))


def run(url: str) -> None:
    database = open_database(url)
    directory, ledger = Directory(database), Ledger(database)
    keys = KeyRing((), directory)
    ledger.start()
    address = Address("127.0.0.1", 0)
    listener = listen(address, keys)
    engine = ScriptedEngine(pause_s=0.01, window=10_000)
    metrics = Metrics([engine])
    meter = Meter(ledger, plans_of(PLAN), directory.plan_of)
    service = Service([engine], keys, metrics.settle, meter, Repeats(database))

    def ready() -> None:
        print(listener.getsockname()[1], flush=True)

    serve(service, metrics, listener, address, ready=ready)


if __name__ == "__main__":
    run(sys.argv[1])
