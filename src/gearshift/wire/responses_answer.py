"""Answers of the responses endpoint: the events of a stream, in the order that clients rely on, and the one object of a
plain answer. Both show the same `ResponseObject`, at different moments of its life.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from gearshift.accounts import Usage
from gearshift.catalog import service_tier_of
from gearshift.engine.protocol import Called, Delta, EngineEvent, Started
from gearshift.wire import sse
from gearshift.wire.answer import Heading
from gearshift.wire.errors import WireError
from gearshift.wire.gather import Choice, Gathered
from gearshift.wire.logprobs import chosen_tokens
from gearshift.wire.responses_object import (
    ArgumentsDeltaEvent,
    ArgumentsDoneEvent,
    Echoed,
    IncompleteDetails,
    InputDoneEvent,
    InputTokensDetails,
    ItemEvent,
    ItemStatus,
    OutputCustomCall,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputTextPart,
    OutputTokensDetails,
    PartEvent,
    ResponseEvent,
    ResponseFailure,
    ResponseObject,
    ResponseUsage,
    Status,
    TextDeltaEvent,
    TextDoneEvent,
)
from gearshift.wire.usage import gear_usage

Done = Callable[[ResponseObject], None]
"""Called with a response that later ones may refer to, before its last bytes leave."""


class _Snapshots:
    """The response object of a turn at any moment."""

    def __init__(self, heading: Heading, echoed: Echoed, *, logprobs: bool) -> None:
        self.item_id = f"msg_{heading.turn_id}"
        self.gathered = Gathered(1)
        self._heading = heading
        self._echoed = echoed
        self._logprobs = logprobs

    @property
    def response_id(self) -> str:
        """The id of the response."""
        return f"resp_{self._heading.turn_id}"

    @property
    def choice(self) -> Choice:
        return self.gathered.choices[0]

    @property
    def cut(self) -> bool:
        """Whether the token limit ended the answer."""
        return self.choice.reason == "length"

    def part(self) -> OutputTextPart:
        logprobs = chosen_tokens(self.choice.logprobs) if self._logprobs else []
        return OutputTextPart(text=self.choice.text, logprobs=logprobs)

    def message(self, status: ItemStatus) -> OutputMessage:
        return OutputMessage(self.item_id, status, [] if status == "in_progress" else [self.part()])

    def output(self, status: ItemStatus) -> list[OutputItem]:
        """All items, a message first unless the answer is nothing but calls; `status` is that of the last one."""
        calls = [call_item(called) for called in self.choice.calls]
        if not calls:
            return [self.message(status)]
        return [self.message("completed"), *calls] if self.choice.text else [*calls]

    def whole(self) -> ResponseObject:
        """The response when its text is complete, or as complete as it gets."""
        usage = self._heading.usage()
        if self.cut:
            details = IncompleteDetails("max_output_tokens")
            return self.response("incomplete", self.output("incomplete"), usage, incomplete_details=details)
        return self.response("completed", self.output("completed"), usage, completed_at=int(time.time()))

    def interrupted(self) -> ResponseObject:
        """The response of a turn that its client stopped: what it had begun to say is discarded, items that were whole
        stay, since the client has them."""
        output = [item for item in self.output("completed") if item.status == "completed"] if self.choice.calls else []
        details = IncompleteDetails("interrupted")
        return self.response("incomplete", output, self._heading.usage(), incomplete_details=details)

    def empty(self) -> ResponseObject:
        """A response that was not to say anything."""
        return self.response("completed", [], self._heading.usage(), completed_at=int(time.time()))

    def failed(self, output: list[OutputItem], error: ResponseFailure) -> ResponseObject:
        """The response as far as it came."""
        return self.response("failed", output, self._heading.usage(), error=error)

    def response(
        self,
        status: Status,
        output: list[OutputItem],
        usage: Usage | None = None,
        *,
        completed_at: int | None = None,
        error: ResponseFailure | None = None,
        incomplete_details: IncompleteDetails | None = None,
    ) -> ResponseObject:
        begun = self.gathered.begun
        gear = begun.gear if begun else self._heading.usage().gear
        echoed = self._echoed
        return ResponseObject(
            id=self.response_id,
            created_at=self._heading.created,
            model=self._heading.model.id,
            status=status,
            service_tier=service_tier_of(gear),
            seed=begun.seed if begun else None,
            output=output,
            usage=None if usage is None else _usage(usage),
            completed_at=completed_at,
            error=error,
            incomplete_details=incomplete_details,
            instructions=echoed.instructions,
            max_output_tokens=echoed.max_output_tokens,
            metadata=echoed.metadata,
            parallel_tool_calls=echoed.parallel_tool_calls,
            temperature=echoed.temperature,
            top_p=echoed.top_p,
            top_logprobs=echoed.top_logprobs,
            text=echoed.text,
            tools=echoed.tools,
            tool_choice=echoed.tool_choice,
            store=echoed.store,
            previous_response_id=echoed.previous_response_id,
            end_turn=False if incomplete_details and incomplete_details.reason == "interrupted" else msgspec.UNSET,
        )


def call_item(called: Called, status: ItemStatus | None = None) -> OutputFunctionCall | OutputCustomCall:
    """A call as an item; `incomplete` where the answer ended inside it."""
    call = called.call
    status = status or ("completed" if called.whole else "incomplete")
    text = "" if status == "in_progress" else call.arguments
    if call.kind == "custom":
        return OutputCustomCall(f"ctc_{call.call_id}", status, call.call_id, call.name, text)
    return OutputFunctionCall(f"fc_{call.call_id}", status, call.call_id, call.name, text)


class ResponseStream:
    """Events: created, in progress; item and part added; text as it comes; text, part and item done; each call as soon
    as it is whole; the outcome."""

    def __init__(self, heading: Heading, echoed: Echoed, *, logprobs: bool, done: Done) -> None:
        self._shots = _Snapshots(heading, echoed, logprobs=logprobs)
        self._done = done
        self._logprobs = logprobs
        self._next = 0
        self._open = False
        self._items = 0
        slot = TextDeltaEvent(sse.SLOT_NUMBER, self._shots.item_id, sse.SLOT)
        self._text = sse.NumberedTemplate(sse.named(slot.type, slot))

    @property
    def response_id(self) -> str:
        """The id of the response."""
        return self._shots.response_id

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        self._shots.gathered.take(batch)
        out: list[bytes] = []
        for event in batch:
            if isinstance(event, Started):
                out.append(self._show("response.created", self._shots.response("in_progress", [])))
                out.append(self._show("response.in_progress", self._shots.response("in_progress", [])))
            elif isinstance(event, Delta):
                out.append(self._delta(event))
            elif isinstance(event, Called):
                if self._open:
                    out.append(self._close_message("completed"))
                out.append(self._call(event))
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self) -> bytes:
        status = "incomplete" if self._shots.cut else "completed"
        out: list[bytes] = []
        if not self._open and not self._items:
            out.append(self._add_item())
        if self._open:
            out.append(self._close_message(status))
        out.append(self._last(f"response.{status}", self._shots.whole()))
        return b"".join(out)

    def interrupt(self) -> bytes:
        """The end of a stream that its client stopped after it had seen it begin."""
        return self._last("response.incomplete", self._shots.interrupted())

    def end_empty(self) -> bytes:
        """The end of a stream that was not to say anything."""
        return self._last("response.completed", self._shots.empty())

    def _last(self, name: str, response: ResponseObject) -> bytes:
        self._done(response)
        return self._show(name, response)

    def fail(self, error: WireError) -> bytes:
        failure = ResponseFailure(_failure_code(error), _failure_message(error))
        output = self._shots.output("incomplete") if self._open or self._items else []
        return self._show("response.failed", self._shots.failed(output, failure))

    def _delta(self, delta: Delta) -> bytes:
        if not delta.text and not (self._logprobs and delta.logprobs):
            return b""
        before = b"" if self._open else self._add_item()
        if not self._logprobs:
            return before + self._text.fill(self._number(), delta.text)
        event = TextDeltaEvent(self._number(), self._shots.item_id, delta.text, logprobs=chosen_tokens(delta.logprobs))
        return before + sse.named(event.type, event)

    def _close_message(self, status: ItemStatus) -> bytes:
        self._open = False
        shots, part = self._shots, self._shots.part()
        text = TextDoneEvent(self._number(), shots.item_id, part.text, logprobs=part.logprobs)
        ended = PartEvent("response.content_part.done", self._number(), shots.item_id, part)
        done = ItemEvent("response.output_item.done", self._number(), shots.message(status))
        return b"".join(sse.named(event.type, event) for event in (text, ended, done))

    def _call(self, called: Called) -> bytes:
        index, self._items = self._items, self._items + 1
        item = call_item(called)
        added = ItemEvent("response.output_item.added", self._number(), call_item(called, "in_progress"), index)
        custom = isinstance(item, OutputCustomCall)
        kind = "response.custom_tool_call_input.delta" if custom else "response.function_call_arguments.delta"
        delta = ArgumentsDeltaEvent(kind, self._number(), item.id, index, called.call.arguments)
        events: list[ItemEvent | ArgumentsDeltaEvent | ArgumentsDoneEvent | InputDoneEvent] = [added, delta]
        if called.whole:
            number, text = self._number(), called.call.arguments
            events.append(
                InputDoneEvent(number, item.id, index, text)
                if custom
                else ArgumentsDoneEvent(number, item.id, index, item.name, text)
            )
        events.append(ItemEvent("response.output_item.done", self._number(), item, index))
        return b"".join(sse.named(event.type, event) for event in events)

    def _add_item(self) -> bytes:
        self._open = True
        self._items += 1
        item = ItemEvent("response.output_item.added", self._number(), self._shots.message("in_progress"))
        part = PartEvent("response.content_part.added", self._number(), self._shots.item_id, OutputTextPart(""))
        return sse.named(item.type, item) + sse.named(part.type, part)

    def _show(self, name: str, response: ResponseObject) -> bytes:
        return sse.named(name, ResponseEvent(name, self._number(), response))

    def _number(self) -> int:
        number = self._next
        self._next += 1
        return number


class PlainResponse:
    """One object, when the answer is complete."""

    def __init__(self, heading: Heading, echoed: Echoed, *, logprobs: bool, done: Done) -> None:
        self._shots = _Snapshots(heading, echoed, logprobs=logprobs)
        self._done = done

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        self._shots.gathered.take(batch)
        return b""

    def end(self) -> bytes:
        whole = self._shots.whole()
        self._done(whole)
        return msgspec.json.encode(whole)

    def fail(self, error: WireError) -> bytes:
        return error.body()


def _failure_code(error: WireError) -> str:
    """The word by which clients decide whether to try again."""
    if error.status == 429:
        return "rate_limit_exceeded"
    return "server_error" if error.status >= 500 else error.object.code or "invalid_prompt"


def _failure_message(error: WireError) -> str:
    """In a stream there is no header for the time to wait, so clients read it from the text."""
    wait = error.headers.get("retry-after")
    return f"{error.object.message} Please try again in {wait}s." if wait else error.object.message


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(usage.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(),
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        gearshift=gear_usage(usage),
    )
