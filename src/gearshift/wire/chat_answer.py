"""Answers of the chat endpoint: the chunks of a stream and the one object of a plain answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.catalog import service_tier_of
from gearshift.conversation import ToolCall
from gearshift.engine.protocol import Called, ChoiceEnd, Delta, EngineEvent
from gearshift.wire.answer import FINGERPRINT, Heading
from gearshift.wire.chunks import ChunkStream, StreamOptions
from gearshift.wire.errors import WireError
from gearshift.wire.gather import Choice, Gathered, Reason
from gearshift.wire.logprobs import ChosenToken, chosen_tokens
from gearshift.wire.usage import CompletionUsage, completion_usage


class ChatLogprobs(msgspec.Struct):
    """Log-probabilities of a choice's tokens, or of those that a chunk brings."""

    content: list[ChosenToken]
    refusal: None = None


class AnsweredFunction(msgspec.Struct):
    """The function that is called, with the exact text of its arguments."""

    name: str
    arguments: str


class AnsweredCustom(msgspec.Struct):
    """The custom tool that is called, with its text."""

    name: str
    input: str


class FunctionAnswer(msgspec.Struct, tag_field="type", tag="function"):
    """A function call. `index` stands in streams only."""

    id: str
    function: AnsweredFunction
    index: int | UnsetType = UNSET


class CustomAnswer(msgspec.Struct, tag_field="type", tag="custom"):
    """A custom tool's call. `index` stands in streams only."""

    id: str
    custom: AnsweredCustom
    index: int | UnsetType = UNSET


CallAnswer = FunctionAnswer | CustomAnswer


def _answered(call: ToolCall, index: int | UnsetType = UNSET) -> CallAnswer:
    if call.kind == "custom":
        return CustomAnswer(call.call_id, AnsweredCustom(call.name, call.arguments), index)
    return FunctionAnswer(call.call_id, AnsweredFunction(call.name, call.arguments), index)


class AnswerMessage(msgspec.Struct):
    """What the model said; no content when it only called tools."""

    content: str | None
    tool_calls: list[CallAnswer] | UnsetType = UNSET
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct):
    """One complete choice."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Reason


class ChatCompletion(msgspec.Struct):
    """A plain answer. `seed` is an extension: the seed that was used, drawn if none was given."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    service_tier: str
    seed: int
    object: Literal["chat.completion"] = "chat.completion"
    system_fingerprint: str = FINGERPRINT


class ChunkDelta(msgspec.Struct, omit_defaults=True):
    """What a chunk adds to its choice."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    tool_calls: list[CallAnswer] | None = None


class ChunkChoice(msgspec.Struct):
    """One choice in a chunk."""

    index: int
    delta: ChunkDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: Reason | None = None


class ChatChunk(msgspec.Struct):
    """One event of a stream. The extension `seed` stands in the first chunk of a choice."""

    id: str
    created: int
    model: str
    service_tier: str
    choices: list[ChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    system_fingerprint: str = FINGERPRINT
    usage: CompletionUsage | UnsetType | None = UNSET
    seed: int | UnsetType = UNSET


class ChatStream(ChunkStream[ChunkChoice]):
    """Chunks: a role for every choice, the text as it comes, a reason for every choice, counts if asked for."""

    def __init__(self, heading: Heading, choices: int, options: StreamOptions | None, *, logprobs: bool) -> None:
        super().__init__(heading, choices, options)
        self._logprobs = logprobs
        self._calls = [0] * choices

    def start(self, seed: int) -> bytes:
        roles = (ChunkChoice(index, ChunkDelta(role="assistant", content="")) for index in range(self._choices))
        return b"".join(self.chunk(role, seed) for role in roles)

    def text(self, choice: int, text: str) -> ChunkChoice:
        return ChunkChoice(choice, ChunkDelta(content=text))

    def with_logprobs(self, delta: Delta) -> ChunkChoice | None:
        if not self._logprobs:
            return None
        logprobs = ChatLogprobs(chosen_tokens(delta.logprobs))
        return ChunkChoice(delta.choice, ChunkDelta(content=delta.text), logprobs=logprobs)

    def called(self, event: Called) -> bytes:
        index = self._calls[event.choice]
        self._calls[event.choice] += 1
        return self.chunk(ChunkChoice(event.choice, ChunkDelta(tool_calls=[_answered(event.call, index)])))

    def over(self, end: ChoiceEnd) -> bytes:
        reason = "tool_calls" if self._calls[end.choice] and end.reason == "stop" else end.reason
        return self.chunk(ChunkChoice(end.choice, ChunkDelta(), finish_reason=reason))

    def frame(
        self, choices: list[ChunkChoice], usage: CompletionUsage | UnsetType | None, seed: int | UnsetType = UNSET
    ) -> ChatChunk:
        return ChatChunk(
            id=f"chatcmpl-{self._heading.turn_id}",
            created=self._heading.created,
            model=self._heading.model.id,
            service_tier=service_tier_of(self.started.gear),
            choices=choices,
            usage=usage,
            seed=seed,
        )


class PlainChat:
    """One object, when the last choice is complete."""

    def __init__(self, heading: Heading, choices: int, *, logprobs: bool) -> None:
        self._heading = heading
        self._logprobs = logprobs
        self._gathered = Gathered(choices)

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        self._gathered.take(batch)
        return b""

    def end(self) -> bytes:
        started = self._gathered.started
        completion = ChatCompletion(
            id=f"chatcmpl-{self._heading.turn_id}",
            created=self._heading.created,
            model=self._heading.model.id,
            choices=[self._choice(index, choice) for index, choice in enumerate(self._gathered.choices)],
            usage=completion_usage(self._heading.usage()),
            service_tier=service_tier_of(started.gear),
            seed=started.seed,
        )
        return msgspec.json.encode(completion)

    def fail(self, error: WireError) -> bytes:
        return error.body()

    def _choice(self, index: int, choice: Choice) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=AnswerMessage(
                choice.text or (None if choice.calls else ""),
                [_answered(called.call) for called in choice.calls] if choice.calls else UNSET,
            ),
            logprobs=ChatLogprobs(chosen_tokens(choice.logprobs)) if self._logprobs else None,
            finish_reason=choice.finish_reason,
        )
