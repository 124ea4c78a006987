"""The grammar of answers with tool calls: text until a call is begun, and from there on nothing but calls that fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gearshift.conversation import Tool
from gearshift.engine.protocol import Calls, InvalidGeneration
from gearshift.tools import BEGIN, END, json_head

ANY_OBJECT = '{"type":"object"}'
_NOT_BEGUN = r"TEXT: ~/(?s:.*)<tool_call>(?s:.*)/"
_LEAD = r"lead[lazy]: /(?s:.*)<tool_call>/"
_FREE = r"free[lazy]: /(?s:.*)\n<\/tool_call>/"


def grammar_of_calls(calls: Calls, json_part: dict[str, Any] | None, parts: Sequence[dict[str, Any]]) -> str:
    """The grammars as llguidance reads them.

    json_part: the grammar of the answer when it is no call, where it must be JSON.
    parts: a grammar for each tool; an empty one lets a custom tool take any text.
    """
    tools = offered(calls)
    begin, end = json.dumps(BEGIN), json.dumps(END)
    one = [_call(f"t{index}", tool, bool(part)) for index, (tool, part) in enumerate(zip(tools, parts, strict=True))]
    several = calls.parallel and calls.choice in ("auto", "required")
    rules = [
        f"calls: call ({json.dumps(chr(10) + BEGIN)} call)*" if several else "calls: call",
        f'call: "\\n" ({" | ".join(one)})',
        f"end: {end}",
    ]
    if calls.choice != "auto":
        rules = [f"start: {begin} calls", *rules]
    elif json_part is not None:
        rules = [f"start: @text | {begin} calls", *rules]
    else:
        rules = ["start: TEXT | lead calls", *rules, _NOT_BEGUN, _LEAD]
    if any(not part for part in parts):
        rules.append(_FREE)
    named = [part | {"name": f"t{index}"} for index, part in enumerate(parts) if part]
    text = [json_part | {"name": "text"}] if json_part is not None and calls.choice == "auto" else []
    return json.dumps({"grammars": [{"lark_grammar": "\n".join(rules)}, *named, *text]})


def offered(calls: Calls) -> tuple[Tool, ...]:
    """The tools that may be called. Raises InvalidGeneration: the one that must be called does not exist."""
    if calls.choice in ("auto", "required"):
        return calls.tools
    named = tuple(tool for tool in calls.tools if tool.name == calls.choice)
    if not named:
        raise InvalidGeneration(f"There is no tool {calls.choice!r} to be called.", "tool_choice")
    return named


def _call(name: str, tool: Tool, has_grammar: bool) -> str:
    if tool.kind == "function":
        return f'{json.dumps(json_head(tool.name))} @{name} "}}" end'
    return f"{json.dumps(tool.name + chr(10))} " + (f"@{name} end" if has_grammar else "free")
