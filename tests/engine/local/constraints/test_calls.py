"""Answers with tool calls: text is free until a call is begun, and a call fits its tool."""

from __future__ import annotations

import json

import pytest

from gearshift.conversation import Tool, ToolCall
from gearshift.engine.local.constraints import Grammars, Matcher
from gearshift.engine.protocol import Calls, InvalidGeneration, JsonObject
from gearshift.tools import written

BYTES = Grammars(
    [b"", *(bytes([byte]) for byte in range(255))], frozenset([0]), lambda text: [1 + b for b in text.encode()]
)
PATCH = """
start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
hunk: "*** Add File: " /(.+)/ LF ("+" /(.*)/ LF)+
%import common.LF
"""
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GET = Tool("get", parameters=json.dumps(CITY | {"additionalProperties": False}), strict=True)
ANY = Tool("any")
EDIT = Tool("edit", kind="custom", grammar=PATCH)
SAY = Tool("say", kind="custom")
ALL = (GET, ANY, EDIT, SAY)

GOT = written(ToolCall("", "get", '{"city": "Paris"}'))
EDITED = written(ToolCall("", "edit", "*** Begin Patch\n*** Add File: a.py\n+x = 1\n*** End Patch", "custom"))
SAID = written(ToolCall("", "say", "any </tool_call> text\n<tool_call> at all", "custom"))


def compiled(*tools: Tool, choice: str = "auto", parallel: bool = True, text: JsonObject | None = None) -> Matcher:
    return BYTES.compile(Calls(tools, choice, parallel, text))


def follows(matcher: Matcher, text: str) -> bool:
    return matcher.fitting([1 + byte for byte in text.encode()]) == len(text.encode())


def may_end(matcher: Matcher, text: str) -> bool:
    """Whether the answer may end behind this text."""
    matcher = matcher.copy()
    for byte in text.encode():
        assert matcher.fitting([1 + byte]) == 1, text
        matcher.advance(1 + byte)
    return matcher.complete or bool(matcher.masks(())[0][0] & 1)


@pytest.mark.parametrize(
    "text", ["", "Hello.", "a < b, <tool> and <tool_cal", f"Look:\n{GOT}", f"{GOT}\n{EDITED}", SAID]
)
def test_text_and_calls_may_be_the_whole_answer(text: str) -> None:
    assert may_end(compiled(*ALL), text)


@pytest.mark.parametrize(
    "text",
    [
        "so <tool_call> now",
        "<tool_call>\nother\n",
        '<tool_call>\n{"name": "none"',
        '<tool_call>\n{"name": "get", "arguments": {"town"',
        '<tool_call>\n{"name": "get", "arguments": {"city": "x"}, ',
        '<tool_call>\n{"name": "any", "arguments": [',
        "<tool_call>\nedit\nno patch",
        f"{GOT} and more",
    ],
)
def test_what_begins_as_a_call_must_fit(text: str) -> None:
    assert not follows(compiled(*ALL), text)


def test_an_answer_cannot_end_inside_a_call() -> None:
    matcher = compiled(*ALL)
    for end in range(len("Look:\n<tool_call>"), len(f"Look:\n{GOT}")):
        assert not may_end(matcher, f"Look:\n{GOT}"[:end])


def test_a_call_that_is_required_comes_first_and_one_that_is_named_comes_alone() -> None:
    required = compiled(*ALL, choice="required")
    assert not follows(required, "Look")
    assert not may_end(required, "")
    assert may_end(required, f"{EDITED}\n{GOT}")
    named = compiled(*ALL, choice="get")
    assert follows(named, GOT)
    assert not follows(named, EDITED)
    assert not follows(named, f"{GOT}\n")
    assert may_end(named, GOT)


def test_calls_one_at_a_time() -> None:
    one = compiled(*ALL, parallel=False)
    assert may_end(one, GOT)
    assert not follows(one, f"{GOT}\n")


def test_text_may_have_a_format_beside_calls() -> None:
    matcher = compiled(GET, text=JsonObject())
    assert may_end(matcher, '{"a": 1}')
    assert may_end(matcher, GOT)
    assert not follows(matcher, "Hello")


def test_the_tool_at_fault_is_named() -> None:
    wrong = Tool("bad", parameters='{"properties": {"a": {"not": {}}}}', strict=True)
    with pytest.raises(InvalidGeneration, match=r"tool 'bad' cannot be served.*not") as error:
        compiled(GET, wrong, EDIT)
    assert error.value.param == "tools"
    with pytest.raises(InvalidGeneration, match="tool 'worse' cannot be served"):
        compiled(GET, Tool("worse", kind="custom", grammar="start: nothing"))
    with pytest.raises(InvalidGeneration, match="no tool 'x'"):
        compiled(GET, choice="x")


def test_a_lenient_tool_leaves_out_what_is_not_supported() -> None:
    lenient = Tool("bad", parameters='{"properties": {"a": {"type": "integer"}}, "not": {"required": ["b"]}}')
    matcher = compiled(lenient, choice="required")
    assert follows(matcher, written(ToolCall("", "bad", '{"a": 1, "b": 2}')))
    assert not follows(matcher, written(ToolCall("", "bad", '{"a": "x"}')))
