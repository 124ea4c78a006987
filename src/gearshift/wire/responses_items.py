"""Input items of the responses endpoint and their translation into items of a conversation. A message may come without
a type; everything else names one, and is decoded by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Raw

from gearshift.conversation import Item, Message, Reasoning, ToolCall, ToolOutput
from gearshift.wire.decode import decode
from gearshift.wire.errors import invalid
from gearshift.wire.parts import InputText, OutputText, PlainText, Refusal, text_of


class SummaryText(msgspec.Struct):
    """A piece of a reasoning summary."""

    # Not a tag: msgspec lets a struct that stands alone come without its tag.
    type: Literal["summary_text"]
    text: str


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """A piece of reasoning."""

    text: str


Part = InputText | OutputText | PlainText | Refusal


class MessageItem(msgspec.Struct):
    """Something said by somebody."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]
    type: Literal["message"] = "message"


class FunctionCallItem(msgspec.Struct):
    """A function call in an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class FunctionOutputItem(msgspec.Struct):
    """What a function answered."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[Part]


class CustomCallItem(msgspec.Struct):
    """A call with free text in an earlier answer."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str


class CustomOutputItem(msgspec.Struct):
    """What such a tool answered."""

    type: Literal["custom_tool_call_output"]
    call_id: str
    output: str | list[Part]


class ReasoningItem(msgspec.Struct):
    """Reasoning in an earlier answer: its text where given, else its summary."""

    type: Literal["reasoning"]
    summary: list[SummaryText] = []
    content: list[ReasoningText | PlainText] | None = None


class _Typed(msgspec.Struct):
    type: str | None = None


ITEMS: tuple[type[msgspec.Struct], ...] = (
    MessageItem,
    FunctionCallItem,
    FunctionOutputItem,
    CustomCallItem,
    CustomOutputItem,
    ReasoningItem,
)
ITEM_SCHEMA = {"anyOf": [{"$ref": f"#/components/schemas/{item.__name__}"} for item in ITEMS]}

AnyItem = MessageItem | FunctionCallItem | FunctionOutputItem | CustomCallItem | CustomOutputItem | ReasoningItem

_typed = msgspec.json.Decoder(_Typed)
_decoders: dict[str, msgspec.json.Decoder[AnyItem]] = {
    "message": msgspec.json.Decoder(MessageItem),
    "function_call": msgspec.json.Decoder(FunctionCallItem),
    "function_call_output": msgspec.json.Decoder(FunctionOutputItem),
    "custom_tool_call": msgspec.json.Decoder(CustomCallItem),
    "custom_tool_call_output": msgspec.json.Decoder(CustomOutputItem),
    "reasoning": msgspec.json.Decoder(ReasoningItem),
}


def items_of(raw: Sequence[Raw]) -> list[Item]:
    """The items in our words. Raises WireError with the path of the field at fault."""
    return [_item(one, f"input[{index}]") for index, one in enumerate(raw)]


def _item(raw: Raw, path: str) -> Item:
    kind = decode(_typed, raw, path).type or "message"
    decoder = _decoders.get(kind)
    if decoder is None:
        served = ", ".join(_decoders)
        raise invalid(f"Items of type {kind!r} are not served here; served: {served}.", f"{path}.type")
    match decode(decoder, raw, path):
        case MessageItem() as item:
            return Message(item.role, text_of(item.content))
        case FunctionCallItem() as item:
            return ToolCall(item.call_id, item.name, item.arguments)
        case CustomCallItem() as item:
            return ToolCall(item.call_id, item.name, item.input, "custom")
        case FunctionOutputItem() | CustomOutputItem() as item:
            return ToolOutput(item.call_id, text_of(item.output))
        case ReasoningItem() as item:
            return Reasoning("".join(part.text for part in item.content or item.summary))
