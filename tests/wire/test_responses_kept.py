"""What is kept of a response is what a client would send back: the conversation with the items of the answer, calls
too, and nothing that was only begun.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gearshift.caller import Usage
from gearshift.catalog import ModelEntry
from gearshift.conversation import Item, Message, ToolCall
from gearshift.engine.protocol import Called, ChoiceEnd, Delta, EngineEvent, Started
from gearshift.wire.answer import Heading
from gearshift.wire.responses import Shown, read_response

HEADING = Heading(
    "1", 0, ModelEntry("m", 100, chat=True, created=0, owner="t"), lambda: Usage(1, 0, 2, ending="finished")
)
CALLS: tuple[EngineEvent, ...] = (
    Delta(0, "Let me see.", (1,)),
    Called(0, ToolCall("call_1", "look", '{"at": 1}')),
    Called(0, ToolCall("call_2", "patch", "text", "custom")),
)


class Kept:
    """A memory that shows what it was given."""

    def __init__(self) -> None:
        self.items: tuple[Item, ...] = ()
        self.shown: dict[str, Any] | None = None

    def recall(self, response_id: str) -> tuple[Item, ...] | None:
        return (Message("user", "before"),)

    def keep(self, response_id: str, items: tuple[Item, ...], shown: Shown | None) -> None:
        assert response_id == "resp_1"
        self.items = items
        self.shown = None if shown is None else json.loads(shown())


def kept(*events: EngineEvent, interrupt: bool = False, **fields: Any) -> Kept:
    memory = Kept()
    body = {
        "model": "m",
        "input": "hi",
        "stream": True,
        "instructions": "be brief",
        "previous_response_id": "r",
        **fields,
    }
    answer = read_response(msgspec.json.encode(body), memory).stream_answer(HEADING)
    answer.feed([Started(1, 0, 7, "standard"), *events])
    if interrupt:
        answer.interrupt()
    else:
        answer.feed([ChoiceEnd(0, "stop", 3)])
        answer.end()
    return memory


def test_the_answer_is_kept_as_items_and_instructions_are_not() -> None:
    memory = kept(Delta(0, "ho", (1,)))
    assert memory.items == (Message("user", "before"), Message("user", "hi"), Message("assistant", "ho"))
    assert memory.shown is None


def test_calls_are_kept_as_they_were_made() -> None:
    memory = kept(*CALLS)
    assert memory.items[2:] == (
        Message("assistant", "Let me see."),
        ToolCall("call_1", "look", '{"at": 1}'),
        ToolCall("call_2", "patch", "text", "custom"),
    )


def test_of_an_interrupted_answer_only_whole_items_are_kept() -> None:
    assert kept(Delta(0, "Let me", (1,)), interrupt=True).items[2:] == ()
    assert kept(*CALLS[:2], interrupt=True).items[2:] == (
        Message("assistant", "Let me see."),
        ToolCall("call_1", "look", '{"at": 1}'),
    )


def test_a_stored_response_is_shown_whole() -> None:
    shown = kept(Delta(0, "ho", (1,)), store=True).shown
    assert shown is not None
    assert (shown["id"], shown["status"], shown["store"]) == ("resp_1", "completed", True)
    assert shown["output"][0]["content"][0]["text"] == "ho"
