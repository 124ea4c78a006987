"""Response requests: input items in all their shapes, and what is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gearshift.conversation import Conversation, Message, Reasoning, ToolCall, ToolOutput
from gearshift.engine.protocol import JsonObject, JsonSchema, Sampling
from gearshift.wire.errors import WireError
from gearshift.wire.responses import read_response


def body(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "m", "input": "hi", **fields})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"input": []}, "input"),
    ({"input": None}, "input"),
    ({"input": [5]}, "input[0]"),
    ({"input": [{"type": 5}]}, "input[0].type"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "king", "content": ""}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
    ({"input": ["x", {"role": "user", "content": "a"}]}, "input[0]"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "c"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"background": True}, "background"),
    ({"truncation": "auto"}, "truncation"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tools": [{"name": "f"}]}, "tools[0].type"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"metadata": {"a": 1}}, "metadata"),
]


def test_a_text_is_a_user_message_after_the_instructions() -> None:
    (asked,) = read_response(body(instructions="be brief", max_output_tokens=5)).asked()
    assert asked.prompt == Conversation((Message("system", "be brief"), Message("user", "hi")))
    assert asked.sampling == Sampling(max_tokens=5)


def test_every_kind_of_item_is_translated() -> None:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "b"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "c", "annotations": []}, {"type": "refusal", "refusal": "d"}],
        },
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "1", "output": "e"},
        {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "text"},
        {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "f"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "g"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "h"}]},
    ]
    (asked,) = read_response(body(input=items)).asked()
    assert asked.prompt == Conversation(
        (
            Message("user", "a"),
            Message("developer", "b"),
            Message("assistant", "cd"),
            ToolCall("1", "f", "{}"),
            ToolOutput("1", "e"),
            ToolCall("2", "g", "text", "custom"),
            ToolOutput("2", "f"),
            Reasoning("g"),
            Reasoning("h"),
        )
    )


def test_logprobs_are_asked_for_in_either_way() -> None:
    assert read_response(body()).asked()[0].sampling.logprobs is None
    assert read_response(body(top_logprobs=0)).asked()[0].sampling.logprobs is None
    assert read_response(body(top_logprobs=2)).asked()[0].sampling.logprobs == 2
    assert read_response(body(include=["message.output_text.logprobs"])).asked()[0].sampling.logprobs == 0


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(WireError) as caught:
        read_response(body(**fields))
    assert caught.value.status == 400
    assert caught.value.object.param == param


def test_a_deep_item_is_refused_without_a_crash() -> None:
    raw = b'{"model": "m", "input": [{"type": "message", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"
    with pytest.raises(WireError) as caught:
        read_response(raw)
    assert caught.value.status == 400


def test_a_format_is_a_constraint() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    asked_for = {"type": "json_schema", "name": "titled", "strict": True, "schema": schema}
    request = read_response(body(text={"format": asked_for}))
    assert request.asked()[0].constraint == JsonSchema(msgspec.json.encode(schema).decode(), strict=True)
    assert request.fields()["constraint"] == "text.format"
    assert read_response(body(text={"format": {"type": "json_object"}})).asked()[0].constraint == JsonObject()
    assert read_response(body(text={"format": {"type": "text"}})).asked()[0].constraint is None
