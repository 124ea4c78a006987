"""A client of the WebSocket as its users are: one request at a time, events until the last one of a response."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.server.running import Running

LAST = ("response.completed", "response.failed", "response.incomplete", "error")

Event = dict[str, Any]


class Talk:
    """One connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def send(self, type: str = "response.create", **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type, **fields}))

    def create(self, input: Any = "a b c", **fields: Any) -> None:
        self.send(model="scripted", input=input, **fields)

    def event(self) -> Event:
        return json.loads(self.socket.recv())

    def until(self, *types: str) -> list[Event]:
        """Events up to the first of one of these types."""
        events = [self.event()]
        while events[-1]["type"] not in types:
            events.append(self.event())
        return events

    def ask(self, input: Any = "a b c", **fields: Any) -> list[Event]:
        """All events of one request."""
        self.create(input, **fields)
        return self.until(*LAST)


@contextlib.contextmanager
def talking(server: Running, key: str | None = None, compression: str | None = None) -> Generator[Talk]:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    url = f"ws://127.0.0.1:{server.port}/v1/responses"
    with connect(url, additional_headers=headers, compression=compression) as socket:
        yield Talk(socket)
