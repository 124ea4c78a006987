"""Frames of the WebSocket: what is read from them, and the events that they carry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gearshift.accounts.books import BookedTurn, Granted, Period, TankState, WindowState
from gearshift.conversation import Conversation, Item, Message
from gearshift.engine.protocol import Sampling
from gearshift.wire import sse
from gearshift.wire.errors import WireError
from gearshift.wire.responses import Shown
from gearshift.wire.websocket import error_frame, frames_of, limits_frame, read_create, read_head


class Noted:
    """A memory with one response in it."""

    def __init__(self, *items: Item) -> None:
        self._items = items

    def recall(self, response_id: str) -> tuple[Item, ...] | None:
        return self._items if response_id == "resp_1" else None

    def keep(self, response_id: str, items: tuple[Item, ...], shown: Shown | None) -> None:
        raise AssertionError("nothing is answered here")


def frame(**fields: Any) -> str:
    return json.dumps({"type": "response.create", "model": "m", "input": "hi", **fields})


def test_a_frame_is_read_like_a_body_and_goes_on_from_what_was_said() -> None:
    call = read_create(frame(previous_response_id="resp_1", max_output_tokens=7), Noted(Message("user", "before")))
    assert not call.warm_up
    (asked,) = call.asked()
    assert asked.prompt == Conversation((Message("user", "before"), Message("user", "hi")))
    assert asked.sampling == Sampling(max_tokens=7)
    with pytest.raises(WireError) as caught:
        read_create(frame(previous_response_id="resp_2"), Noted())
    assert caught.value.object.code == "previous_response_not_found"


def test_a_warm_up_may_be_empty_and_asks_for_one_token_of_nobody() -> None:
    call = read_create(frame(generate=False, service_tier="ultrafast", max_output_tokens=7), Noted())
    assert call.warm_up
    assert not call.empty
    ahead = call.prefill()
    assert (ahead.gear, ahead.gear_fallback, ahead.drafts) == ("ultrafast", True, "off")
    assert ahead.sampling.max_tokens == 1
    assert ahead.prompt == call.asked()[0].prompt
    assert read_create(frame(generate=False, input=[]), Noted()).empty
    with pytest.raises(WireError):
        read_create(frame(input=[]), Noted())


def test_what_codex_sends_beside_a_request_does_not_disturb() -> None:
    fields: dict[str, Any] = {
        "instructions": None,
        "tools": [{"type": "function", "name": "exec_command", "strict": False, "parameters": {"type": "object"}}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a22fb2",
        "client_metadata": {"session_id": "01a22fb2"},
    }
    (asked,) = read_create(frame(**fields), Noted()).asked()
    assert asked.gear == "standard"


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"type": 1}'])
def test_a_broken_head_is_refused(text: str) -> None:
    with pytest.raises(WireError) as caught:
        read_head(text)
    assert caught.value.status == 400


def test_events_are_frames_whatever_their_text() -> None:
    events = [{"type": "a", "delta": "\n\ndata: x\n\n\u2028"}, {"type": "b"}]
    written = b"".join(sse.named(str(event["type"]), event) for event in events)
    assert [json.loads(one) for one in frames_of(written)] == events
    assert frames_of(b"") == []


def test_an_error_has_its_status_and_headers_in_the_frame() -> None:
    error = WireError(429, "Full.", code="overloaded", kind="rate_limit_error", retry_after_s=2.2)
    shown = json.loads(error_frame(error))
    assert (shown["type"], shown["status"], shown["headers"]) == ("error", 429, {"retry-after": "3"})
    assert (shown["error"]["code"], shown["error"]["message"]) == ("overloaded", "Full.")


def test_the_tank_that_a_turn_draws_from_is_told_without_its_own_reservation() -> None:
    period = Period("anna", "main", "5h", 1, 0, 18_000)
    turn = BookedTurn("1", "anna", "main", "m", "standard", 0, 100, (period,))
    windows = (WindowState("5h", 1000, 400, 18_000, 300), WindowState("week", 2000, 1900, None, 10_080))
    other = TankState("other", "overflow", (WindowState("5h", 10, 0, 1, 300),))
    shown = json.loads(limits_frame(Granted(turn, False, (other, TankState("main", "main", windows)))))
    assert shown["type"] == "codex.rate_limits"
    assert shown["rate_limits"] == {
        "primary": {"used_percent": 50.0, "window_minutes": 300, "reset_at": 18_000},
        "secondary": {"used_percent": 0.0, "window_minutes": 10_080, "reset_at": None},
    }
