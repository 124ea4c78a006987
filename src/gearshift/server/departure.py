"""Notices that a client has gone while its turn runs: the connection closed, or nothing was read for too long. The
task that serves it is then cancelled at whatever it waits for, so that its rows are free at the engine's next step.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Message, Receive, Send


class Departure:
    """Runs its body until it is done or the client has left; the client's leaving ends the body without an error."""

    def __init__(self, receive: Receive, send: Send, stalled_s: float) -> None:
        self.left = False
        self._receive = receive
        self._send = send
        self._stalled_s = stalled_s
        self._over = False
        self._writing = False
        self._writes = 0

    async def send(self, message: Message) -> None:
        """Send, and be watched doing it."""
        self._writing = True
        self._writes += 1
        try:
            await self._send(message)
        finally:
            self._writing = False

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None, "requests are served in tasks"
        self._task = task
        self._watch = loop.create_task(self._disconnected())
        self._watch.add_done_callback(lambda watch: None if watch.cancelled() else self._leave())
        self._timer = loop.call_later(self._stalled_s, self._check, self._writes)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._over = True
        self._watch.cancel()
        self._timer.cancel()
        # The cancellation was ours: the task goes on as if its body had ended.
        return self.left and self._task.uncancel() == 0 and isinstance(error, asyncio.CancelledError)

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _check(self, writes: int) -> None:
        if self._writing and writes == self._writes:
            self._leave()
        else:
            self._timer = asyncio.get_running_loop().call_later(self._stalled_s, self._check, self._writes)

    def _leave(self) -> None:
        if not self._over and not self.left:
            self.left = True
            self._task.cancel()
