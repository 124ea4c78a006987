"""`POST /v1/responses`: what a request may hold, and its translation into a turn. Input items are in `responses_items`;
how the answer looks is in `responses_answer`. Earlier responses that a request goes on from come from a `Memory`, which
transport provides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from msgspec import Meta, Raw

from gearshift.conversation import Conversation, Item, Message
from gearshift.engine.protocol import Calls
from gearshift.service import Asked
from gearshift.wire.answer import Answer, Heading
from gearshift.wire.decode import decode
from gearshift.wire.errors import WireError, invalid, not_served
from gearshift.wire.formats import ResponseFormat, TextFormat, constraint_of
from gearshift.wire.gears import asked_of
from gearshift.wire.responses_answer import PlainResponse, ResponseStream
from gearshift.wire.responses_items import ITEM_SCHEMA, items_of
from gearshift.wire.responses_object import (
    Echoed,
    ResponseObject,
    TextConfig,
)
from gearshift.wire.sampling import (
    ModelName,
    SamplingFields,
    Tokens,
    TopLogprobs,
    sampling_of,
)
from gearshift.wire.tools import TOOL_SCHEMA, ResponseChoice, calls_of, served_tools, tools_of


class TextOptions(msgspec.Struct):
    """How the answer is written."""

    format: ResponseFormat | None = None


_Items = Annotated[list[Annotated[Raw, Meta(extra_json_schema=ITEM_SCHEMA)]], Meta(extra_json_schema={"minItems": 1})]
_Tool = Annotated[Raw, Meta(extra_json_schema=TOOL_SCHEMA)]
_Tools = Annotated[list[_Tool], Meta(extra_json_schema={"uniqueItems": True})]
_Never = Annotated[Any, Meta(extra_json_schema={"type": "null"})]


class ResponseRequest(SamplingFields, kw_only=True):
    """A response request. Unknown fields are ignored."""

    model: ModelName
    input: str | _Items
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
    tools: _Tools | None = None
    tool_choice: ResponseChoice | None = None
    previous_response_id: str | None = None
    conversation: _Never | None = None
    prompt: _Never | None = None
    background: Annotated[bool, Meta(extra_json_schema={"enum": [False]})] | None = None


_decoder = msgspec.json.Decoder(ResponseRequest)

_Kind = TypeVar("_Kind", ResponseStream, PlainResponse)

Shown = Callable[[], bytes]
"""The JSON of a response."""


class Memory(Protocol):
    """The responses that a caller's later ones may go on from."""

    def recall(self, response_id: str) -> tuple[Item, ...] | None:
        """The conversation up to and with this response; None when there is none of this id for this caller."""
        ...

    def keep(self, response_id: str, items: tuple[Item, ...], shown: Shown | None) -> None:
        """A response is complete. `shown` is given when the caller wants to find it later, on any connection."""
        ...


class Forgetful:
    """No memory at all."""

    def recall(self, response_id: str) -> tuple[Item, ...] | None:
        return None

    def keep(self, response_id: str, items: tuple[Item, ...], shown: Shown | None) -> None:
        pass


_FORGETFUL = Forgetful()


class ResponseCall:
    """A response request, read and found right."""

    def __init__(self, request: ResponseRequest, memory: Memory = _FORGETFUL, *, may_be_empty: bool = False) -> None:
        self._request = request
        self._memory = memory
        self.stream = bool(request.stream)
        _refuse_unserved(request)
        wants_logprobs = bool(request.top_logprobs) or "message.output_text.logprobs" in (request.include or ())
        self._logprobs = (request.top_logprobs or 0) if wants_logprobs else None
        sampling = sampling_of(request, max_tokens=request.max_output_tokens, logprobs=self._logprobs)
        self._format = request.text.format if request.text else None
        self._said = _said(request, memory)
        if not self._said and not may_be_empty:
            raise invalid("Expected at least one item at 'input', got none.", "input")
        # Instructions belong to one request: those of the response before are not carried over.
        instructions = [Message("system", request.instructions)] if request.instructions else []
        self._tools = served_tools(request.tools or ())
        tools = tools_of(self._tools)
        text = constraint_of(self._format)
        constraint = calls_of(tools, request.tool_choice, request.parallel_tool_calls, text)
        prompt = Conversation((*instructions, *self._said), tools if isinstance(constraint, Calls) else ())
        self._asked = asked_of(request, request.model, prompt, sampling, constraint=constraint)

    def asked(self) -> list[Asked]:
        return [self._asked]

    def answer(self, heading: Heading) -> Answer:
        return self.stream_answer(heading) if self.stream else self._answer(PlainResponse, heading)

    def stream_answer(self, heading: Heading) -> ResponseStream:
        """The answer of a turn on a connection that carries events only."""
        return self._answer(ResponseStream, heading)

    def _answer(self, kind: type[_Kind], heading: Heading) -> _Kind:
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
            store=bool(request.store),
            previous_response_id=request.previous_response_id,
            tools=self._tools,
            tool_choice=request.tool_choice or "auto",
        )
        return kind(heading, echoed, logprobs=self._logprobs is not None, done=self._keep)

    def _keep(self, response: ResponseObject) -> None:
        # What was put out can be put in, so the items of the answer are read as those of a request.
        answered = items_of([Raw(msgspec.json.encode(item)) for item in response.output])
        shown = partial(msgspec.json.encode, response) if self._request.store else None
        self._memory.keep(response.id, (*self._said, *answered), shown)

    def fields(self) -> dict[str, str]:
        return {
            "prompt": "input",
            "max_tokens": "max_output_tokens",
            "gear": "service_tier",
            "constraint": "text.format",
        }


def read_response(body: bytes, memory: Memory = _FORGETFUL) -> ResponseCall:
    """The request in a body. Raises WireError."""
    return ResponseCall(decode(_decoder, body), memory)


class Deleted(msgspec.Struct):
    """A stored response is gone."""

    id: str
    deleted: bool = True
    object: str = "response"


def no_such_response(response_id: str) -> WireError:
    """The answer to whoever asks for a response that is not, or no longer, stored for him."""
    message = f"There is no stored response {response_id[:100]!r}: it was not stored, or is no longer kept."
    return WireError(404, message, param="response_id", code="response_not_found")


def _said(request: ResponseRequest, memory: Memory) -> tuple[Item, ...]:
    """The conversation that the request continues, and what it adds."""
    before: tuple[Item, ...] | None = ()
    if request.previous_response_id is not None:
        before = memory.recall(request.previous_response_id)
        if before is None:
            raise invalid(
                f"There is no response {request.previous_response_id[:100]!r} to go on from: it was not stored, or is "
                "no longer kept. Send the whole conversation in 'input'.",
                "previous_response_id",
                "previous_response_not_found",
            )
    if isinstance(request.input, str):
        return (*before, Message("user", request.input))
    return (*before, *items_of(request.input))


def _refuse_unserved(request: ResponseRequest) -> None:
    if request.truncation not in (None, "disabled"):
        raise not_served("Dropping items that do not fit", "truncation", "Use 'disabled' and shorten the input.")
    if request.background:
        raise not_served("Running in the background", "background", "Leave it out and use 'stream'.")
    for name in ("conversation", "prompt"):
        if getattr(request, name) is not None:
            raise not_served(f"A stored {name}", name, "Send everything in 'input'.")
