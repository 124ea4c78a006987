"""A response and its items as the responses endpoint shows them, and the events of its stream. When each of them leaves
is said in `responses_answer`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gearshift.wire.formats import ResponseFormat, TextFormat
from gearshift.wire.logprobs import ChosenToken
from gearshift.wire.tools import ResponseChoice, ResponseTool
from gearshift.wire.usage import GearUsage

# What lists hold that are always empty here.
Never = Any

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputTextPart(msgspec.Struct):
    """Text that the model wrote."""

    text: str
    annotations: list[Never] = []
    logprobs: list[ChosenToken] = []
    type: Literal["output_text"] = "output_text"


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputMessage(msgspec.Struct, tag_field="type", tag="message"):
    """A message that the model wrote."""

    id: str
    status: ItemStatus
    content: list[OutputTextPart]
    role: Literal["assistant"] = "assistant"


class OutputFunctionCall(msgspec.Struct, tag_field="type", tag="function_call"):
    """A function call; `arguments` is the exact text that the model wrote."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class OutputCustomCall(msgspec.Struct, tag_field="type", tag="custom_tool_call"):
    """A custom tool's call with its text."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    input: str


OutputItem = OutputMessage | OutputFunctionCall | OutputCustomCall


class InputTokensDetails(msgspec.Struct):
    """Input tokens that were found in the cache, or written to it by demand (never, here)."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct):
    """Output tokens that were reasoning."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct):
    """Exact counts."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int
    gearshift: GearUsage


class IncompleteDetails(msgspec.Struct):
    """Why an answer stopped early."""

    reason: Literal["max_output_tokens", "interrupted"]


class ResponseFailure(msgspec.Struct):
    """Why an answer failed."""

    code: str
    message: str


class ReasoningOptions(msgspec.Struct, frozen=True):
    """How hard the model thinks: the models served so far do not."""

    effort: None = None
    summary: None = None


class TextConfig(msgspec.Struct, frozen=True):
    """How the answer is written."""

    format: ResponseFormat = TextFormat()


class Echoed(msgspec.Struct):
    """What a response repeats of its request."""

    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    temperature: float
    top_p: float
    top_logprobs: int
    text: TextConfig
    tools: list[ResponseTool]
    tool_choice: ResponseChoice
    store: bool = False
    previous_response_id: str | None = None


class ResponseObject(Echoed, kw_only=True):
    """A response. `seed` is an extension: the seed that was used, drawn if none was given; a response that failed
    before it began has none."""

    id: str
    created_at: int
    model: str
    status: Status
    service_tier: str
    seed: int | None
    output: list[OutputItem]
    usage: ResponseUsage | None = None
    completed_at: int | None = None
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    object: Literal["response"] = "response"
    background: bool = False
    end_turn: bool | msgspec.UnsetType = msgspec.UNSET
    reasoning: ReasoningOptions = ReasoningOptions()
    truncation: Literal["disabled"] = "disabled"


class ResponseEvent(msgspec.Struct):
    """An event that shows the whole response."""

    type: str
    sequence_number: int
    response: ResponseObject


class ItemEvent(msgspec.Struct):
    """An event that shows an output item."""

    type: str
    sequence_number: int
    item: OutputItem
    output_index: int = 0


class PartEvent(msgspec.Struct):
    """An event that shows a part of an item."""

    type: str
    sequence_number: int
    item_id: str
    part: OutputTextPart
    output_index: int = 0
    content_index: int = 0


class TextDeltaEvent(msgspec.Struct):
    """New text of a part."""

    sequence_number: int
    item_id: str
    delta: str
    output_index: int = 0
    content_index: int = 0
    logprobs: list[ChosenToken] = []
    type: Literal["response.output_text.delta"] = "response.output_text.delta"


class TextDoneEvent(msgspec.Struct):
    """All text of a part."""

    sequence_number: int
    item_id: str
    text: str
    output_index: int = 0
    content_index: int = 0
    logprobs: list[ChosenToken] = []
    type: Literal["response.output_text.done"] = "response.output_text.done"


class ArgumentsDeltaEvent(msgspec.Struct):
    """New text of a call: all of it, since calls come whole."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int
    delta: str


class ArgumentsDoneEvent(msgspec.Struct):
    """All arguments of a function call."""

    sequence_number: int
    item_id: str
    output_index: int
    name: str
    arguments: str
    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"


class InputDoneEvent(msgspec.Struct):
    """All text of a custom tool's call."""

    sequence_number: int
    item_id: str
    output_index: int
    input: str
    type: Literal["response.custom_tool_call_input.done"] = "response.custom_tool_call_input.done"
