"""`POST /v1/chat/completions`: what a request may hold, and its translation into a turn. How the answer looks is in
`chat_answer`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gearshift.conversation import Conversation, Item, Message, ToolCall, ToolOutput
from gearshift.service import Asked
from gearshift.wire.answer import Answer, Heading
from gearshift.wire.chat_answer import ChatStream, PlainChat
from gearshift.wire.chunks import StreamOptions
from gearshift.wire.decode import decode
from gearshift.wire.errors import invalid, not_served
from gearshift.wire.formats import ChatFormat, constraint_of
from gearshift.wire.gears import asked_of
from gearshift.wire.parts import PlainText, Refusal, Text, text_of
from gearshift.wire.sampling import (
    ChoiceFields,
    ModelName,
    Tokens,
    TopLogprobs,
    sampling_of,
)


class SystemMessage(msgspec.Struct, tag_field="role", tag="system"):
    """Instructions."""

    content: Text


class DeveloperMessage(msgspec.Struct, tag_field="role", tag="developer"):
    """Instructions, by their newer name."""

    content: Text


class UserMessage(msgspec.Struct, tag_field="role", tag="user"):
    """What the user says."""

    content: Text


class CalledFunction(msgspec.Struct):
    """A function that the model called, with the exact text of its arguments."""

    name: str
    arguments: str


class CalledTool(msgspec.Struct):
    """A call in an earlier answer."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class AssistantMessage(msgspec.Struct, tag_field="role", tag="assistant"):
    """An earlier answer."""

    content: str | list[PlainText | Refusal] | None = None
    refusal: str | None = None
    tool_calls: list[CalledTool] | None = None


class ToolMessage(msgspec.Struct, tag_field="role", tag="tool"):
    """What a tool answered."""

    content: Text
    tool_call_id: str


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


_Empty = Annotated[list[Any], Meta(extra_json_schema={"maxItems": 0})]
_NoChoice = Annotated[Any, Meta(extra_json_schema={"enum": ["none", "auto", None]})]


class ChatRequest(ChoiceFields, kw_only=True):
    """A chat request. Unknown fields are ignored; `tools` are refused, not ignored."""

    model: ModelName
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    response_format: ChatFormat | None = None
    tools: _Empty | None = None
    tool_choice: _NoChoice | None = None
    functions: _Empty | None = None
    modalities: list[Annotated[str, Meta(extra_json_schema={"enum": ["text"]})]] | None = None


_decoder = msgspec.json.Decoder(ChatRequest)


class Chat:
    """A chat request, read and found right."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self.stream = bool(request.stream)
        _refuse_unserved(request)
        self._asked = _asked(request)

    def asked(self) -> list[Asked]:
        return [self._asked]

    def answer(self, heading: Heading) -> Answer:
        request = self._request
        logprobs = bool(request.logprobs)
        choices = self._asked.sampling.n
        if not self.stream:
            return PlainChat(heading, choices, logprobs=logprobs)
        return ChatStream(heading, choices, request.stream_options, logprobs=logprobs)

    def fields(self) -> dict[str, str]:
        limit = "max_tokens" if self._request.max_completion_tokens is None else "max_completion_tokens"
        return {
            "prompt": "messages",
            "max_tokens": limit,
            "gear": "service_tier",
            "constraint": "response_format",
        }


def read_chat(body: bytes) -> Chat:
    """The request in a body. Raises WireError."""
    return Chat(decode(_decoder, body))


def _refuse_unserved(request: ChatRequest) -> None:
    if request.tools or request.functions:
        raise not_served(
            "Calling tools", "tools" if request.tools else "functions", "Describe them in a message, or leave them out."
        )
    if request.tool_choice not in (None, "none", "auto"):
        raise not_served("Forcing a tool call", "tool_choice", "Use 'auto' or 'none'.")
    if request.modalities and set(request.modalities) != {"text"}:
        raise not_served("Anything but text", "modalities", "Use ['text'].")


def _asked(request: ChatRequest) -> Asked:
    if request.top_logprobs and not request.logprobs:
        raise invalid("'top_logprobs' is only allowed with 'logprobs' set to true.", "top_logprobs")
    limit = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    prompt = Conversation(tuple(item for message in request.messages for item in _items(message)))
    sampling = sampling_of(request, max_tokens=limit, logprobs=logprobs)
    return asked_of(request, request.model, prompt, sampling, constraint=constraint_of(request.response_format))


def _items(message: ChatMessage) -> list[Item]:
    match message:
        case SystemMessage():
            return [Message("system", text_of(message.content))]
        case DeveloperMessage():
            return [Message("developer", text_of(message.content))]
        case UserMessage():
            return [Message("user", text_of(message.content))]
        case ToolMessage():
            return [ToolOutput(message.tool_call_id, text_of(message.content))]
        case AssistantMessage():
            calls = [
                ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
            ]
            said = text_of(message.refusal or "" if message.content is None else message.content)
            return [Message("assistant", said), *calls] if said or not calls else [*calls]
