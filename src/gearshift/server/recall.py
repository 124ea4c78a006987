"""What later requests may go on from: over HTTP the caller's stored responses, on a WebSocket also the last few of the
same connection, stored or not.
"""

from __future__ import annotations

from collections import OrderedDict

from gearshift.caller import Caller
from gearshift.conversation import Item
from gearshift.stored import StoredResponse, StoredResponses, items_bytes
from gearshift.wire.responses import Shown

_OF_CONNECTION = 8
_CONNECTION_BYTES = 32 << 20


class CallerMemory:
    """The stored responses of one caller, as wire wants them."""

    def __init__(self, stored: StoredResponses, caller: Caller) -> None:
        self._stored = stored
        self._caller = caller

    def recall(self, response_id: str) -> tuple[Item, ...] | None:
        found = self._stored.get(self._caller, response_id)
        return found.items if found else None

    def keep(self, response_id: str, items: tuple[Item, ...], shown: Shown | None) -> None:
        if shown is not None:
            self._stored.put(self._caller, StoredResponse(response_id, items, shown()))


class ConnectionMemory(CallerMemory):
    """The same, and the last responses of one connection, within a bound: a client whose response is not kept any
    more is told so and sends its whole conversation."""

    def __init__(self, stored: StoredResponses, caller: Caller) -> None:
        super().__init__(stored, caller)
        self._last: OrderedDict[str, tuple[Item, ...]] = OrderedDict()
        self._bytes: dict[str, int] = {}

    def recall(self, response_id: str) -> tuple[Item, ...] | None:
        # An empty conversation is one too: that of a warm-up with nothing in it.
        return self._last[response_id] if response_id in self._last else super().recall(response_id)

    def keep(self, response_id: str, items: tuple[Item, ...], shown: Shown | None) -> None:
        self._last[response_id] = items
        self._bytes[response_id] = items_bytes(items)
        while len(self._last) > _OF_CONNECTION or sum(self._bytes.values()) > _CONNECTION_BYTES:
            oldest, _ = self._last.popitem(last=False)
            del self._bytes[oldest]
        super().keep(response_id, items, shown)
