"""What a connection remembers is bounded by number and by size; an empty conversation is one as well."""

from __future__ import annotations

from gearshift.caller import LOCAL
from gearshift.conversation import Message
from gearshift.server import recall
from gearshift.server.recall import CallerMemory, ConnectionMemory
from gearshift.stored import StoredResponses

ITEMS = (Message("user", "a"),)


def test_the_last_few_responses_of_a_connection_are_known() -> None:
    memory = ConnectionMemory(StoredResponses(), LOCAL)
    for number in range(20):
        memory.keep(f"resp_{number}", ITEMS, None)
    assert [number for number in range(20) if memory.recall(f"resp_{number}") is not None] == list(range(12, 20))
    memory.keep("empty", (), None)
    assert memory.recall("empty") == ()


def test_large_conversations_are_not_kept_for_a_connection() -> None:
    memory = ConnectionMemory(StoredResponses(), LOCAL)
    large = (Message("user", "x" * (recall._CONNECTION_BYTES // 2)),)  # pyright: ignore[reportPrivateUsage]
    memory.keep("one", large, None)
    assert memory.recall("one") == large
    memory.keep("two", large, None)
    assert memory.recall("one") is None
    memory.keep("three", large * 3, None)
    assert memory.recall("three") is None
    assert memory.recall("two") is None


def test_what_was_stored_is_known_everywhere() -> None:
    stored = StoredResponses()
    ConnectionMemory(stored, LOCAL).keep("one", ITEMS, lambda: b"{}")
    assert CallerMemory(stored, LOCAL).recall("one") == ITEMS
    assert ConnectionMemory(stored, LOCAL).recall("one") == ITEMS
    CallerMemory(stored, LOCAL).keep("two", ITEMS, None)
    assert CallerMemory(stored, LOCAL).recall("two") is None
