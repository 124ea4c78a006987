"""A conversation as the list of messages that chat templates expect, in the forms that a template can take.

Templates differ in what they accept. Most take any sequence of roles; some know no system role, want user and
assistant to alternate, or have no words for tools. `FORMS` lists how the same conversation is said, most faithful
first; `renderer.py` takes the first that the template renders without losing a message. Reasoning goes only to
templates that ask for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gearshift.conversation import Conversation, Item, Message, Reasoning, Tool, ToolCall, ToolOutput
from gearshift.tools import BEGIN, described, told, written

Guard = Callable[[str], str]
"""Marks text that is not the template's own (see `renderer.py`)."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a template has words for, read off its source.

    Attributes:
        tools: calls in the markup of `gearshift.tools`, and outputs; else these are told in plain text.
        listed: the tools on offer; else they are told in the system message.
        reasoning: an assistant's `reasoning_content`; else reasoning is left out.
    """

    tools: bool
    listed: bool
    reasoning: bool


def abilities_of(source: str) -> Abilities:
    """What a template's source mentions."""
    own = "tool_calls" in source and BEGIN in source and "<function=" not in source
    tools = own and any(f"{quote}tool{quote}" in source for quote in "'\"")
    listed = tools and re.search(r"\btools\b", source) is not None
    return Abilities(tools, listed, reasoning="reasoning_content" in source)


def messages_of(items: Sequence[Item], able: Abilities, guard: Guard) -> list[dict[str, Any]]:
    """The items as messages. An assistant's text and the tool calls behind it are one message; the developer role
    is the system role; every text of others is guarded."""
    messages: list[dict[str, Any]] = []
    reasoning = ""
    for item in items:
        last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
        match item:
            case Message("assistant", text):
                messages.append({"role": "assistant", "content": guard(text)})
                if reasoning:
                    messages[-1]["reasoning_content"] = guard(reasoning)
                reasoning = ""
            case Message(role, text):
                messages.append({"role": "system" if role == "developer" else role, "content": guard(text)})
            case ToolCall():
                if last is None:
                    last = {"role": "assistant", "content": ""}
                    if reasoning:
                        last["reasoning_content"] = guard(reasoning)
                    reasoning = ""
                    messages.append(last)
                _add_call(last, item, able, guard)
            case ToolOutput(call_id, output):
                messages.append(_output(call_id, output, able, guard))
            case Reasoning(text):
                reasoning = text if able.reasoning else ""
    return messages


def _add_call(message: dict[str, Any], call: ToolCall, able: Abilities, guard: Guard) -> None:
    if not able.tools or call.kind == "custom":
        said = guard(written(call))
        message["content"] = f"{message['content']}\n{said}" if message["content"] else said
        return
    function = {"name": guard(call.name), "arguments": _arguments(call.arguments, guard)}
    entry = {"id": guard(call.call_id), "type": "function", "function": function}
    message.setdefault("tool_calls", []).append(entry)


def _output(call_id: str, output: str, able: Abilities, guard: Guard) -> dict[str, Any]:
    if able.tools:
        return {"role": "tool", "tool_call_id": guard(call_id), "content": guard(output)}
    return {"role": "user", "content": guard(f"<tool_response>\n{output}\n</tool_response>")}


def tools_of(tools: Sequence[Tool], able: Abilities, guard: Guard) -> list[dict[str, Any]] | None:
    """The tools as a template takes them; None when it has no words for them, or there are none."""
    listed = [_guarded(described(tool), guard) for tool in tools if tool.kind == "function"]
    return listed if able.listed and listed else None


def with_tools_told(prompt: Conversation, able: Abilities) -> Sequence[Item]:
    """The items, with those tools told in the first system message that the template has no words for."""
    text = told([tool for tool in prompt.tools if tool.kind == "custom" or not able.listed])
    if not text:
        return prompt.items
    match prompt.items:
        case (Message("system" | "developer" as role, said), *others):
            return [Message(role, f"{said}\n\n{text}"), *others]
        case items:
            return [Message("system", text), *items]


def _arguments(text: str, guard: Guard) -> Any:
    """Arguments as templates expect them: an object, or the text as it is when it is none."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return _guarded(value, guard) if isinstance(value, dict) else guard(text)


def _guarded(value: Any, guard: Guard) -> Any:
    match value:
        case str():
            return guard(value)
        case list():
            return [_guarded(item, guard) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {guard(key): _guarded(item, guard) for key, item in value.items()}  # pyright: ignore
        case _:
            return value


Messages = list[dict[str, Any]]


def as_said(messages: Messages) -> Messages:
    """The messages as they are."""
    return messages


def late_system_as_user(messages: Messages) -> Messages:
    """System messages behind the first message become the user's."""
    return [
        message | {"role": "user"} if at and message["role"] == "system" else message
        for at, message in enumerate(messages)
    ]


def system_as_user(messages: Messages) -> Messages:
    """Every system message becomes the user's."""
    return [message | {"role": "user"} if message["role"] == "system" else message for message in messages]


def alternating(messages: Messages) -> Messages:
    """Neighbours of the same role are joined, and a user's message begins."""
    joined: Messages = []
    for message in messages:
        before = joined[-1] if joined else None
        if before and before["role"] == message["role"] != "tool" and "tool_calls" not in before:
            content = "\n\n".join(text for text in (before["content"], message["content"]) if text)
            joined[-1] = before | message | {"content": content}
        else:
            joined.append(message)
    first = next((at for at, message in enumerate(joined) if message["role"] != "system"), len(joined))
    if first == len(joined) or joined[first]["role"] != "user":
        joined.insert(first, {"role": "user", "content": ""})
    return joined


Form = Callable[[Messages], Messages]
FORMS: tuple[Form, ...] = (
    as_said,
    late_system_as_user,
    lambda messages: alternating(late_system_as_user(messages)),
    lambda messages: alternating(system_as_user(messages)),
)
"""Ways to say the same, most faithful first."""
