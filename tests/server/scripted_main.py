"""A server over a scripted engine in a process of its own: `python -m tests.server.scripted_main PORT DRAIN_S`."""

from __future__ import annotations

import sys

from gearshift.accounts import KeyRing
from gearshift.server.lifecycle import Address, CannotServe, listen, serve
from gearshift.server.metrics import Metrics
from gearshift.service import Service
from tests.scripted import ScriptedEngine


def main(port: int, drain_s: int) -> None:
    address = Address("127.0.0.1", port)
    keys = KeyRing()
    try:
        listener = listen(address, keys)
    except CannotServe as error:
        sys.exit(str(error))
    engine = ScriptedEngine(pause_s=0.02, window=1 << 40)
    metrics = Metrics([engine])
    service = Service([engine], keys, lambda turn_id, caller, usage: print(f"settled {usage.ending}", flush=True))

    def ready() -> None:
        print(f"ready on {listener.getsockname()[1]}", flush=True)

    serve(service, metrics, listener, address, ready=ready, drain_s=drain_s)
    print("ended well" if engine.closed else "engine left open", flush=True)


main(int(sys.argv[1]), int(sys.argv[2]))
