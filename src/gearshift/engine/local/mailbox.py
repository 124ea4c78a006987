"""How events cross from the loop thread to asyncio: one call per step and event loop, whatever the number of turns.

The loop thread posts; the reader of a turn takes. A reader that is slow gets the events of several steps at once; one
that falls far behind is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from gearshift.engine.protocol import EngineEvent, EngineFailure, Overloaded

Failure = EngineFailure | Overloaded
"""Why a turn cannot go on."""

FULL = 512
"""Events not taken by which a mailbox counts as full."""


class Mailbox:
    """The events of one turn on their way to its reader. Everything but `post` and `full` belongs to the reader's
    event loop."""

    __slots__ = ("_events", "_failure", "_waiter", "emptied", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.emptied: Callable[[], None] | None = None
        """Called when the events of a full mailbox were taken."""
        self._events: list[EngineEvent] = []
        self._failure: Failure | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def full(self) -> bool:
        """Whether the reader has fallen so far behind that its turn should pause."""
        return len(self._events) >= FULL

    async def take(self) -> Sequence[EngineEvent]:
        """All events that came since the last call; waits for the first. Raises the turn's failure after them."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            self._waiter = self.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events, self._events = self._events, []
        if len(events) >= FULL and self.emptied is not None:
            self.emptied()
        return events

    def put(self, events: Sequence[EngineEvent], failure: Failure | None) -> None:
        """Add events and wake the reader."""
        self._events.extend(events)
        self._failure = failure
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


Letter = tuple[Mailbox, Sequence[EngineEvent], Failure | None]


def post(letters: Iterable[Letter]) -> list[Mailbox]:
    """Send letters from any thread. Returns the mailboxes whose event loop is closed: nobody will read them."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Letter]] = {}
    for letter in letters:
        by_loop.setdefault(letter[0].loop, []).append(letter)
    dead: list[Mailbox] = []
    for loop, batch in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver, batch)
        except RuntimeError:
            dead.extend(mailbox for mailbox, _, _ in batch)
    return dead


def _deliver(batch: Iterable[Letter]) -> None:
    for mailbox, events, failure in batch:
        mailbox.put(events, failure)
