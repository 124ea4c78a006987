"""Stored responses: those that a caller asked to keep, so that later requests can go on from them or read them again.
They are kept in memory, for a time, within a bound, and found by nobody but the account that made them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gearshift.caller import Caller
from gearshift.conversation import Item, Message, Reasoning, ToolCall, ToolOutput

STORED_BYTES = 256 << 20
STORED_S = 24 * 3600.0
_OVERHEAD = 200
"""What an item takes beside its text."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response.

    Attributes:
        items: the conversation up to and with it, for those that go on from it.
        shown: its JSON, for those that read it.
    """

    id: str
    items: tuple[Item, ...]
    shown: bytes

    @property
    def bytes(self) -> int:
        """Memory that it takes, counted as if it shared no item with another."""
        return len(self.shown) + items_bytes(self.items)


@dataclass(frozen=True, slots=True)
class _Entry:
    response: StoredResponse
    bytes: int
    until: float


class _Shelf:
    """The responses of one account, oldest first."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, _Entry] = OrderedDict()
        self.bytes = 0

    def remove(self, response_id: str) -> _Entry | None:
        entry = self.entries.pop(response_id, None)
        if entry is not None:
            self.bytes -= entry.bytes
        return entry

    def drop_oldest(self) -> int:
        _, entry = self.entries.popitem(last=False)
        self.bytes -= entry.bytes
        return entry.bytes


class StoredResponses:
    """The responses of all accounts. Event loop only."""

    def __init__(
        self, most_bytes: int = STORED_BYTES, kept_s: float = STORED_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """most_bytes: of all together. kept_s: how long each is kept at most."""
        self._most_bytes = most_bytes
        self._kept_s = kept_s
        self._clock = clock
        self._shelves: dict[str, _Shelf] = {}
        self._bytes = 0

    def put(self, caller: Caller, response: StoredResponse) -> None:
        """Keep a response. When there is no room, the oldest of the account that holds most makes some."""
        self._expire()
        shelf = self._shelves.setdefault(caller.account, _Shelf())
        entry = _Entry(response, response.bytes, self._clock() + self._kept_s)
        shelf.entries[response.id] = entry
        shelf.bytes += entry.bytes
        self._bytes += entry.bytes
        while self._bytes > self._most_bytes:
            largest = max(self._shelves, key=lambda account: self._shelves[account].bytes)
            self._bytes -= self._shelves[largest].drop_oldest()
            self._forget_if_empty(largest)

    def get(self, caller: Caller, response_id: str) -> StoredResponse | None:
        """The caller's response of this id."""
        self._expire()
        shelf = self._shelves.get(caller.account)
        entry = shelf.entries.get(response_id) if shelf else None
        return entry.response if entry else None

    def delete(self, caller: Caller, response_id: str) -> bool:
        """Forget the caller's response of this id; whether there was one."""
        shelf = self._shelves.get(caller.account)
        entry = shelf.remove(response_id) if shelf else None
        if entry is None:
            return False
        self._bytes -= entry.bytes
        self._forget_if_empty(caller.account)
        return True

    def _expire(self) -> None:
        now = self._clock()
        for account, shelf in list(self._shelves.items()):
            while shelf.entries and next(iter(shelf.entries.values())).until <= now:
                self._bytes -= shelf.drop_oldest()
            self._forget_if_empty(account)

    def _forget_if_empty(self, account: str) -> None:
        if not self._shelves[account].entries:
            del self._shelves[account]


def items_bytes(items: Sequence[Item]) -> int:
    """Memory that these items take, about."""
    return sum(_OVERHEAD + _characters(item) for item in items)


def _characters(item: Item) -> int:
    match item:
        case Message() | Reasoning():
            return len(item.text)
        case ToolCall():
            return len(item.name) + len(item.arguments)
        case ToolOutput():
            return len(item.output)
