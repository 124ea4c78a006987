"""Chat requests: what is taken, how it is translated, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gearshift.conversation import Conversation, Message, ToolCall, ToolOutput
from gearshift.engine.protocol import Constraint, JsonObject, JsonSchema, Sampling
from gearshift.wire.chat import read_chat
from gearshift.wire.errors import WireError

USER = {"role": "user", "content": "hi"}


def body(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "m", "messages": [USER], **fields})


WRONG: list[tuple[dict[str, Any], str, str | None]] = [
    ({"temperature": 2.5}, "temperature", "invalid_value"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"top_p": -0.1}, "top_p", "invalid_value"),
    ({"n": 0}, "n", "invalid_value"),
    ({"n": True}, "n", "invalid_type"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"seed": 1 << 64}, "seed", "invalid_value"),
    ({"stop": ["a"] * 5}, "stop", "invalid_value"),
    ({"stop": ""}, "stop", "invalid_value"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"-1": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"1": 101}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"1": True}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"1": "2"}}, "logit_bias", "invalid_value"),
    ({"logit_bias": [1]}, "logit_bias", "invalid_type"),
    ({"top_logprobs": 21}, "top_logprobs", "invalid_value"),
    ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
    ({"top_logprobs": 2, "logprobs": False}, "top_logprobs", "invalid_value"),
    ({"service_tier": "warp"}, "service_tier", "invalid_value"),
    ({"model": ""}, "model", "invalid_value"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": [USER, {"content": "x"}]}, "messages[1].role", "missing_required_parameter"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", None),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", None),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}] * 2}, "tools[1]", "invalid_value"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "invalid_value"),
    ({"tool_choice": "always"}, "tool_choice", "invalid_value"),
    ({"functions": [{}]}, "functions", "unsupported_value"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name", None),
    ({"modalities": ["text", "audio"]}, "modalities", "unsupported_value"),
]


def refused(raw: bytes) -> WireError:
    with pytest.raises(WireError) as caught:
        read_chat(raw)
    assert caught.value.status == 400
    return caught.value


def test_defaults_are_those_of_the_api() -> None:
    chat = read_chat(body())
    (asked,) = chat.asked()
    assert asked.sampling == Sampling()
    assert asked.gear == "standard"
    assert asked.prompt == Conversation((Message("user", "hi"),))
    assert not chat.stream


def test_every_field_reaches_the_engine() -> None:
    (asked,) = read_chat(
        body(
            temperature=0.25,
            top_p=0.5,
            top_k=40,
            min_p=0.05,
            presence_penalty=-1,
            frequency_penalty=1.5,
            repetition_penalty=1.1,
            logit_bias={"7": -100, "12": 3.5},
            seed=-1,
            stop=["a", "b"],
            logprobs=True,
            top_logprobs=3,
            ignore_eos=True,
            n=4,
            max_tokens=5,
            max_completion_tokens=9,
            service_tier="ultrafast",
        )
    ).asked()
    assert asked.sampling == Sampling(
        max_tokens=9,
        temperature=0.25,
        top_p=0.5,
        top_k=40,
        min_p=0.05,
        presence_penalty=-1,
        frequency_penalty=1.5,
        repetition_penalty=1.1,
        logit_bias=((7, -100.0), (12, 3.5)),
        seed=(1 << 64) - 1,
        stop=("a", "b"),
        logprobs=3,
        ignore_eos=True,
        n=4,
    )
    assert asked.gear == "ultrafast"


def test_null_means_the_default() -> None:
    nullable = (
        "temperature",
        "top_p",
        "seed",
        "stop",
        "n",
        "max_tokens",
        "stream",
        "tools",
        "service_tier",
        "logit_bias",
    )
    (asked,) = read_chat(body(**dict.fromkeys(nullable))).asked()
    assert asked.sampling == Sampling()


def test_unknown_fields_are_ignored() -> None:
    (asked,) = read_chat(body(user="me", metadata={"a": "b"}, store=True, frobnicate=[{}])).asked()
    assert asked.sampling == Sampling()


def test_every_kind_of_message_becomes_items() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "kind"}]},
        {"role": "user", "content": "go", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "assistant"},
    ]
    (asked,) = read_chat(body(messages=messages)).asked()
    assert asked.prompt == Conversation(
        (
            Message("system", "be brief"),
            Message("developer", "be kind"),
            Message("user", "go"),
            ToolCall("c1", "f", '{"a": 1}'),
            ToolOutput("c1", "42"),
            Message("assistant", "no"),
            Message("assistant", ""),
        )
    )


@pytest.mark.parametrize(("fields", "param", "code"), WRONG)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str, code: str | None) -> None:
    error = refused(body(**fields)).object
    assert error.type == "invalid_request_error"
    assert error.param == param
    assert code is None or error.code == code
    assert error.message.endswith(".")


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_content_that_is_not_text_is_refused_by_name(kind: str) -> None:
    error = refused(body(messages=[{"role": "user", "content": [{"type": kind}]}])).object
    assert error.param == "messages[0].content[0].type"
    assert error.code == "unsupported_value"
    assert error.message == (
        f"Content of type {kind!r}, as in 'messages[0].content[0].type', is not served here: this server takes text."
    )


def test_a_bias_at_fault_is_named() -> None:
    assert "'cat'" in refused(body(logit_bias={"1": 2, "cat": 1})).object.message
    wrong_ones: tuple[object, ...] = (101, -1e300, None, [], True)
    for wrong in wrong_ones:
        assert "token 77" in refused(body(logit_bias={"1": 2, "77": wrong})).object.message


def test_an_unknown_tier_is_answered_with_the_known_ones() -> None:
    message = refused(body(service_tier="warp")).object.message
    for tier in ("default", "priority", "ultrafast", "flex"):
        assert tier in message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b"\xef\xbb\xbf{}",
        b'{"model": "m", "messages": [{"role": "user", "content": "\xff"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800\\u0041"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "a"}]} x',
        b'{"model": "m", "messages": ' + b"[" * 200_000,
        b'{"model": "m", "unknown": ' + b"[" * 200_000,
        b'{"model": "m", "tools": ' + b"[" * 200_000,
        b'{"model": "m", "tools": [' + b'{"a":' * 200_000,
        b'{"model": "m", "seed": ' + b"9" * 100_000 + b"}",
        b'{"model": "m", "temperature": 1e999}',
        b'{"model": "m", "temperature": NaN}',
    ],
)
def test_a_body_that_is_no_json_or_no_object_is_a_400(raw: bytes) -> None:
    assert json.loads(refused(raw).body())["error"]["message"]


def test_a_half_surrogate_is_explained() -> None:
    assert "surrogate" in refused(b'{"model": "m\\udfff"}').object.message


FORMATS: list[tuple[dict[str, Any], Constraint | None]] = [
    ({"type": "text"}, None),
    ({"type": "json_object"}, JsonObject()),
    ({"type": "json_schema", "json_schema": {"name": "any"}}, JsonObject()),
    ({"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}, JsonSchema("{}", strict=False)),
    (
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"b": [1], "a": "é"}, "strict": True}},
        JsonSchema('{"b":[1],"a":"é"}', strict=True),
    ),
]


@pytest.mark.parametrize(("asked_for", "constraint"), FORMATS)
def test_a_format_is_a_constraint_and_its_schema_keeps_its_order(
    asked_for: dict[str, Any], constraint: Constraint | None
) -> None:
    chat = read_chat(body(response_format=asked_for))
    assert chat.asked()[0].constraint == constraint
    assert chat.fields()["constraint"] == "response_format"
