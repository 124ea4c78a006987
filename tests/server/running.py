"""A server over a scripted engine, in a thread of the test process, on a free port."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field

import uvicorn

from gearshift.accounts import KeyRing
from gearshift.accounts.directory import Directory
from gearshift.accounts.meter import Meter
from gearshift.accounts.repeats import Repeats
from gearshift.caller import Caller, Usage
from gearshift.server.app import build_app
from gearshift.server.lifecycle import configuration
from gearshift.server.limits import LIMITS, Limits
from gearshift.server.metrics import Metrics
from gearshift.service import Service
from tests.scripted import ScriptedEngine


@dataclass
class Running:
    """A running server and what it settled."""

    port: int
    engine: ScriptedEngine
    settled: list[tuple[str, Caller, Usage]] = field(default_factory=list[tuple[str, Caller, Usage]])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_settled(self, count: int) -> None:
        """Until so many turns are settled; the test's own timeout is the limit."""
        while len(self.settled) < count:
            time.sleep(0.005)


@contextlib.contextmanager
def running(
    engine: ScriptedEngine | None = None,
    *,
    keys: tuple[str, ...] = (),
    limits: Limits = LIMITS,
    directory: Directory | None = None,
    meter: Meter | None = None,
    repeats: Repeats | None = None,
) -> Generator[Running]:
    engine = engine or ScriptedEngine()
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    server_under_test = Running(listener.getsockname()[1], engine)
    metrics = Metrics([engine])

    def settle(turn_id: str, caller: Caller, usage: Usage) -> None:
        metrics.settle(turn_id, caller, usage)
        server_under_test.settled.append((turn_id, caller, usage))

    app = build_app(Service([engine], KeyRing(keys, directory), settle, meter, repeats), metrics, limits=limits)
    server = uvicorn.Server(configuration(app, drain_s=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield server_under_test
    finally:
        server.should_exit = True
        thread.join()
