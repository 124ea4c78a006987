"""Opens a stream: with its first event, or without it when that takes long. A refusal before is a status of its own;
after it, the refusal is an event.
"""

from __future__ import annotations

import asyncio

from gearshift.server.answers import Headers
from gearshift.server.departure import Departure
from gearshift.server.limits import Limits

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Proxies that buffer would turn a stream into a lump.
    (b"x-accel-buffering", b"no"),
)
_COMMENT = b": waiting\n\n"
_EVENT = b'data: {"type":"keepalive"}\n\n'


class Opening:
    """The head of one stream, and comments until there is something to say."""

    def __init__(self, client: Departure, headers: Headers, limits: Limits, *, codex: bool = False) -> None:
        """codex: the client is Codex, which counts only events as signs of life, and ignores those it does not know."""
        self._done = False
        self._client = client
        self._headers = headers
        self._sign = _EVENT if codex else _COMMENT
        self._comment_s = limits.comment_s
        self._waiting: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(limits.silent_s, self._wait)

    async def finish(self) -> None:
        """The first event is there: nothing but the head goes before it."""
        self.stop()
        await self._head()

    def stop(self) -> bool:
        """No comments from here on, one that waits to be written included. Returns whether the head has left."""
        self._timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
        return self._done

    def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_task(self._comment())

    async def _comment(self) -> None:
        await self._head()
        while True:
            await self._client.send({"type": "http.response.body", "body": self._sign, "more_body": True})
            await asyncio.sleep(self._comment_s)

    async def _head(self) -> None:
        if not self._done:
            headers = [*_HEADERS, *self._headers]
            await self._client.send({"type": "http.response.start", "status": 200, "headers": headers})
            self._done = True
