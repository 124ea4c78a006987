"""Calls read out of an answer: the same however its text is cut, whole as early as possible, and honest when cut."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from gearshift.conversation import Tool, ToolCall
from gearshift.tools import BEGIN, CallReader, Kind, ReadCall, told, written

KINDS: dict[str, Kind] = {"get": "function", "patch": "custom"}
GET = ToolCall("c1", "get", '{"city": "Paris </tool_call> \\n <tool_call>", "n": {}}')
PATCH = ToolCall("c2", "patch", "*** Begin\n+<tool_call> x\n\n*** End", "custom")


def read(pieces: list[str]) -> tuple[str, list[ReadCall], ReadCall | None]:
    reader, text, calls = CallReader(KINDS), "", list[ReadCall]()
    for piece in pieces:
        outside, found = reader.push(piece)
        text += outside
        calls += found
    rest, cut = reader.finish()
    return text + rest, calls, cut


def as_read(call: ToolCall) -> ReadCall:
    return ReadCall(call.name, call.arguments, call.kind)


@pytest.mark.parametrize(
    ("lead", "calls"),
    [("Hello <tool", []), ("I look.\n", [GET]), ("", [GET, PATCH, GET]), ("<", [PATCH]), ("a < b <tool_call", [GET])],
)
def test_calls_are_the_same_however_the_text_is_cut(lead: str, calls: list[ToolCall]) -> None:
    text = lead + "\n".join(written(call) for call in calls)
    draw = random.Random(len(text))
    for size in (1, 2, 7, len(text) or 1):
        cuts = sorted({0, len(text), *(draw.randrange(len(text) + 1) for _ in range(len(text) // size))})
        pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
        assert read(pieces) == (lead, [as_read(call) for call in calls], None)


def test_a_call_comes_with_the_last_character_that_makes_it_whole() -> None:
    reader = CallReader(KINDS)
    for letter in written(GET)[:-1]:
        assert reader.push(letter) == ("", [])
    assert reader.push(">") == ("", [as_read(GET)])


def test_text_passes_through_as_soon_as_it_cannot_begin_a_call() -> None:
    reader = CallReader(KINDS)
    assert reader.push("a <") == ("a ", [])
    assert reader.push("tool") == ("", [])
    assert reader.push("box") == ("<toolbox", [])


@pytest.mark.parametrize("call", [GET, PATCH])
def test_a_cut_call_is_told_as_far_as_it_came(call: ToolCall) -> None:
    text = written(call)
    named = text.index("arguments") + 12 if call.kind == "function" else text.index("patch") + 6
    for end in range(1, len(text)):
        outside, calls, cut = read(["so ", text[:end]])
        assert calls == []
        assert outside == ("so " if end >= len(BEGIN) else "so " + text[:end])
        assert (cut is not None) == (end >= named)
        if cut is not None:
            assert not cut.whole
            assert (cut.name, cut.kind) == (call.name, call.kind)
            assert call.arguments.startswith(cut.arguments) or call.kind == "custom"


def test_tools_are_told_with_their_form() -> None:
    text = told([Tool("get", "Look it up.", parameters='{"type": "object"}'), Tool("patch", "Edit.", "custom")])
    (line,) = [line for line in text.splitlines() if '"function"' in line and '"parameters"' in line]
    assert json.loads(line)["function"]["name"] == "get"
    assert "You may use the tool patch: Edit." in text
    assert text.count(BEGIN) == 2
    assert told([]) == ""
