"""The items of a conversation, independent of any wire format and of any engine.

Wire formats are translated into these types at the edge; engines render them into prompts. Nothing here
knows a JSON field or a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "developer", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """Plain text said by one role."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's request to run a tool; `arguments` is the exact text that the model wrote."""

    call_id: str
    name: str
    arguments: str
    kind: Literal["function", "custom"] = "function"


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool answered to the call `call_id`."""

    call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's own reasoning, kept apart from its answer."""

    text: str


Item = Message | ToolCall | ToolOutput | Reasoning


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call.

    Attributes:
        kind: a function takes a JSON object, a custom tool takes text.
        parameters: the JSON schema of a function's arguments, as text; empty for any object.
        strict: refuse a schema of which not everything is supported, instead of leaving those parts out.
        grammar: what a custom tool's text fits, in Lark; empty for any text.
    """

    name: str
    description: str = ""
    kind: Literal["function", "custom"] = "function"
    parameters: str = ""
    strict: bool = False
    grammar: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The items of a conversation, oldest first, and the tools that may be called next."""

    items: tuple[Item, ...]
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class RawText:
    """A prompt handed to the model as it is, without a chat template (the legacy completions endpoint)."""

    text: str


@dataclass(frozen=True, slots=True)
class RawTokens:
    """A prompt given as token ids of the model's own vocabulary."""

    ids: tuple[int, ...]


Prompt = Conversation | RawText | RawTokens
