"""Stored responses: found by their account alone, for a time, within a bound that the largest holder pays for."""

from __future__ import annotations

from gearshift.caller import Caller
from gearshift.conversation import Message, Reasoning, ToolCall, ToolOutput
from gearshift.stored import StoredResponse, StoredResponses, items_bytes

ANNA, BERT = Caller("anna", "anna"), Caller("bert", "bert")


def response(name: str, size: int = 100) -> StoredResponse:
    return StoredResponse(name, (), b"x" * size)


def test_only_the_account_that_stored_it_finds_it() -> None:
    stored = StoredResponses()
    stored.put(ANNA, response("one"))
    assert stored.get(ANNA, "one") == response("one")
    assert stored.get(ANNA, "two") is None
    assert stored.get(BERT, "one") is None
    assert not stored.delete(BERT, "one")
    assert stored.delete(ANNA, "one")
    assert not stored.delete(ANNA, "one")
    assert stored.get(ANNA, "one") is None


def test_time_ends_it() -> None:
    now = 0.0
    stored = StoredResponses(kept_s=10.0, clock=lambda: now)
    stored.put(ANNA, response("one"))
    now = 5.0
    stored.put(BERT, response("two"))
    now = 9.9
    assert stored.get(ANNA, "one")
    now = 10.0
    assert stored.get(ANNA, "one") is None
    assert stored.get(BERT, "two")
    now = 15.0
    assert stored.get(BERT, "two") is None


def test_whoever_holds_most_makes_room() -> None:
    stored = StoredResponses(most_bytes=1000)
    stored.put(BERT, response("bert"))
    for number in range(20):
        stored.put(ANNA, response(str(number)))
    assert stored.get(BERT, "bert")
    assert [number for number in range(20) if stored.get(ANNA, str(number))] == list(range(11, 20))
    stored.put(BERT, response("huge", 2000))
    assert stored.get(BERT, "huge") is None
    stored.put(ANNA, response("after"))
    assert stored.get(ANNA, "after")


def test_every_kind_of_item_counts_its_text() -> None:
    text = "x" * 1000
    items = (Message("user", text), Reasoning(text), ToolCall("1", "f", text), ToolOutput("1", text))
    assert [1000 <= items_bytes([item]) < 1500 for item in items] == [True] * 4
    assert items_bytes(items) == sum(items_bytes([item]) for item in items)
