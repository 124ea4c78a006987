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
class Conversation:
    """The items of a conversation, oldest first."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class RawText:
    """A prompt handed to the model as it is, without a chat template (the legacy completions endpoint)."""

    text: str


@dataclass(frozen=True, slots=True)
class RawTokens:
    """A prompt given as token ids of the model's own vocabulary."""

    ids: tuple[int, ...]


Prompt = Conversation | RawText | RawTokens
