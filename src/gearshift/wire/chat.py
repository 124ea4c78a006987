"""`POST /v1/chat/completions`: what a request may hold, and its translation into a turn. How the answer looks is in
`chat_answer`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gearshift.conversation import Conversation, Item, Message, ToolCall, ToolOutput
from gearshift.engine.protocol import Calls
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
from gearshift.wire.tools import ChatChoice, ChatTool, calls_of, tools_of


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


class CalledCustom(msgspec.Struct):
    """A custom tool that the model called, with its text."""

    name: str
    input: str


class FunctionCall(msgspec.Struct, tag_field="type", tag="function"):
    """A function call in an earlier answer."""

    id: str
    function: CalledFunction


class CustomCall(msgspec.Struct, tag_field="type", tag="custom"):
    """A custom tool's call in an earlier answer."""

    id: str
    custom: CalledCustom


class AssistantMessage(msgspec.Struct, tag_field="role", tag="assistant"):
    """An earlier answer."""

    content: str | list[PlainText | Refusal] | None = None
    refusal: str | None = None
    tool_calls: list[FunctionCall | CustomCall] | None = None


class ToolMessage(msgspec.Struct, tag_field="role", tag="tool"):
    """What a tool answered."""

    content: Text
    tool_call_id: str


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


_Empty = Annotated[list[Any], Meta(extra_json_schema={"maxItems": 0})]


class ChatRequest(ChoiceFields, kw_only=True):
    """A chat request. Unknown fields are ignored; the older `functions` are refused, not ignored."""

    model: ModelName
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    response_format: ChatFormat | None = None
    tools: Annotated[list[ChatTool], Meta(extra_json_schema={"uniqueItems": True})] | None = None
    tool_choice: ChatChoice | None = None
    parallel_tool_calls: bool | None = None
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
    if request.functions:
        raise not_served("The older form of tools", "functions", "Describe them in 'tools'.")
    if request.modalities and set(request.modalities) != {"text"}:
        raise not_served("Anything but text", "modalities", "Use ['text'].")


def _asked(request: ChatRequest) -> Asked:
    if request.top_logprobs and not request.logprobs:
        raise invalid("'top_logprobs' is only allowed with 'logprobs' set to true.", "top_logprobs")
    limit = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    tools = tools_of(request.tools or ())
    text = constraint_of(request.response_format)
    constraint = calls_of(tools, request.tool_choice, request.parallel_tool_calls, text)
    items = tuple(item for message in request.messages for item in _items(message))
    prompt = Conversation(items, tools if isinstance(constraint, Calls) else ())
    sampling = sampling_of(request, max_tokens=limit, logprobs=logprobs)
    return asked_of(request, request.model, prompt, sampling, constraint=constraint)


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
            calls = [_call(call) for call in message.tool_calls or ()]
            said = text_of(message.refusal or "" if message.content is None else message.content)
            return [Message("assistant", said), *calls] if said or not calls else [*calls]


def _call(call: FunctionCall | CustomCall) -> ToolCall:
    if isinstance(call, CustomCall):
        return ToolCall(call.id, call.custom.name, call.custom.input, "custom")
    return ToolCall(call.id, call.function.name, call.function.arguments)
