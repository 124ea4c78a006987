"""`POST /v1/responses`: what a request may hold, and its translation into a turn. Input items are in `responses_items`;
how the answer looks is in `responses_answer`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from gearshift.conversation import Conversation, Item, Message
from gearshift.service import Asked
from gearshift.wire.answer import Answer, Heading
from gearshift.wire.decode import decode
from gearshift.wire.errors import invalid, not_served
from gearshift.wire.formats import ResponseFormat, TextFormat, constraint_of
from gearshift.wire.gears import asked_of
from gearshift.wire.responses_answer import Echoed, PlainResponse, ResponseStream, TextConfig
from gearshift.wire.responses_items import ITEM_SCHEMA, items_of
from gearshift.wire.sampling import (
    ModelName,
    SamplingFields,
    Tokens,
    TopLogprobs,
    sampling_of,
)


class TextOptions(msgspec.Struct):
    """How the answer is written."""

    format: ResponseFormat | None = None


_Empty = Annotated[list[Any], Meta(extra_json_schema={"maxItems": 0})]
_NoChoice = Annotated[Any, Meta(extra_json_schema={"enum": ["none", "auto", None]})]
_Never = Annotated[Any, Meta(extra_json_schema={"type": "null"})]


class ResponseRequest(SamplingFields, kw_only=True):
    """A response request. Unknown fields are ignored; what refers to stored responses is refused, since none are."""

    model: ModelName
    input: str | Annotated[list[Annotated[Raw, Meta(extra_json_schema=ITEM_SCHEMA)]], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    stream: bool | None = None
    top_logprobs: TopLogprobs | None = None
    include: list[str] | None = None
    text: TextOptions | None = None
    store: bool | None = None
    metadata: Annotated[dict[str, str], Meta(max_length=16)] | None = None
    parallel_tool_calls: bool | None = None
    truncation: Annotated[str, Meta(extra_json_schema={"enum": ["disabled"]})] | None = None
    tools: _Empty | None = None
    tool_choice: _NoChoice | None = None
    previous_response_id: _Never | None = None
    conversation: _Never | None = None
    prompt: _Never | None = None
    background: Annotated[bool, Meta(extra_json_schema={"enum": [False]})] | None = None


_decoder = msgspec.json.Decoder(ResponseRequest)


class ResponseCall:
    """A response request, read and found right."""

    def __init__(self, request: ResponseRequest) -> None:
        self._request = request
        self.stream = bool(request.stream)
        _refuse_unserved(request)
        wants_logprobs = bool(request.top_logprobs) or "message.output_text.logprobs" in (request.include or ())
        self._logprobs = (request.top_logprobs or 0) if wants_logprobs else None
        sampling = sampling_of(request, max_tokens=request.max_output_tokens, logprobs=self._logprobs)
        self._format = request.text.format if request.text else None
        prompt = Conversation(_conversation(request))
        self._asked = asked_of(request, request.model, prompt, sampling, constraint=constraint_of(self._format))

    def asked(self) -> list[Asked]:
        return [self._asked]

    def answer(self, heading: Heading) -> Answer:
        request = self._request
        echoed = Echoed(
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            metadata=request.metadata or {},
            parallel_tool_calls=request.parallel_tool_calls is not False,
            temperature=self._asked.sampling.temperature,
            top_p=self._asked.sampling.top_p,
            top_logprobs=self._logprobs or 0,
            text=TextConfig(self._format or TextFormat()),
        )
        kind = ResponseStream if self.stream else PlainResponse
        return kind(heading, echoed, logprobs=self._logprobs is not None)

    def fields(self) -> dict[str, str]:
        return {
            "prompt": "input",
            "max_tokens": "max_output_tokens",
            "gear": "service_tier",
            "constraint": "text.format",
        }


def read_response(body: bytes) -> ResponseCall:
    """The request in a body. Raises WireError."""
    return ResponseCall(decode(_decoder, body))


def _conversation(request: ResponseRequest) -> tuple[Item, ...]:
    instructions = [Message("system", request.instructions)] if request.instructions else []
    if isinstance(request.input, str):
        return (*instructions, Message("user", request.input))
    return (*instructions, *items_of(request.input))


def _refuse_unserved(request: ResponseRequest) -> None:
    if request.tools:
        raise not_served("Calling tools", "tools", "Describe them in a message, or leave them out.")
    if request.tool_choice not in (None, "none", "auto"):
        raise not_served("Forcing a tool call", "tool_choice", "Use 'auto' or 'none'.")
    if request.truncation not in (None, "disabled"):
        raise not_served("Dropping items that do not fit", "truncation", "Use 'disabled' and shorten the input.")
    if request.background:
        raise not_served("Running in the background", "background", "Leave it out and use 'stream'.")
    if request.previous_response_id is not None:
        raise invalid(
            "Responses are not stored here, so there is no previous one. Send the whole conversation in 'input'.",
            "previous_response_id",
            "previous_response_not_found",
        )
    for name in ("conversation", "prompt"):
        if getattr(request, name) is not None:
            raise not_served(f"A stored {name}", name, "Send everything in 'input'.")
