"""Writes to one WebSocket, watched: a peer that does not read is given up, and one that waits for a busy server is told
now and then that it is not forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from starlette.types import Send

from gearshift.server.limits import Limits
from gearshift.wire.websocket import KEEPALIVE


class Pulse:
    """The sending side of one WebSocket."""

    def __init__(self, send: Send, limits: Limits) -> None:
        self._send = send
        self._stalled_s = limits.stalled_s
        self._silent_s = limits.comment_s
        self._busy = False
        self._writing: float | None = None
        self._wrote = 0.0

    async def send(self, frame: str) -> None:
        """Send a frame. It waits while the peer is behind, and so does the turn that produces."""
        now = asyncio.get_running_loop().time()
        self._writing = now
        try:
            await self._send({"type": "websocket.send", "text": frame})
        finally:
            self._writing = None
        self._wrote = now

    async def close(self, code: int) -> None:
        """End the connection."""
        await self._send({"type": "websocket.close", "code": code})

    @contextmanager
    def busy(self) -> Generator[None]:
        """While this lasts the peer waits for something."""
        self._busy = True
        self._wrote = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self._busy = False

    async def run(self) -> None:
        """Beat until the peer is to be given up."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(self._silent_s, self._stalled_s) / 2)
            now = loop.time()
            if self._writing is not None:
                if now - self._writing >= self._stalled_s:
                    return
            elif self._busy and now - self._wrote >= self._silent_s:
                await self.send(KEEPALIVE)
