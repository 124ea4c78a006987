"""Answers of the chat endpoint: the chunks of a stream and the one object of a plain answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.accounts import Usage
from gearshift.catalog import service_tier_of
from gearshift.engine.protocol import ChoiceEnd, Delta, EngineEvent, Started
from gearshift.wire import sse
from gearshift.wire.answer import FINGERPRINT, Heading
from gearshift.wire.errors import ErrorBody, WireError
from gearshift.wire.gather import Choice, Gathered, Reason
from gearshift.wire.logprobs import ChosenToken, chosen_tokens
from gearshift.wire.usage import CompletionUsage, completion_usage


class ChatLogprobs(msgspec.Struct):
    """Log-probabilities of a choice's tokens, or of those that a chunk brings."""

    content: list[ChosenToken]
    refusal: None = None


class AnswerMessage(msgspec.Struct):
    """What the model said."""

    content: str
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


class ChatStream:
    """Chunks: a role for every choice, the text as it comes, a reason for every choice, counts if asked for."""

    def __init__(self, heading: Heading, *, choices: int, logprobs: bool, include_usage: bool) -> None:
        self._heading = heading
        self._choices = choices
        self._logprobs = logprobs
        # With usage asked for, every chunk carries the field, null until the last.
        self._usage: UnsetType | None = None if include_usage else UNSET
        self._tier = ""
        self._texts: list[sse.TextTemplate] = []

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        out: list[bytes] = []
        for event in batch:
            if isinstance(event, Delta):
                out.append(self._delta(event))
            elif isinstance(event, ChoiceEnd):
                out.append(self._chunk(ChunkChoice(event.choice, ChunkDelta(), finish_reason=event.reason)))
            else:
                out.append(self._start(event))
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self, usage: Usage) -> bytes:
        if self._usage is UNSET:
            return sse.DONE
        return sse.data(self._frame([], usage=completion_usage(usage))) + sse.DONE

    def fail(self, error: WireError, usage: Usage) -> bytes:
        return sse.data(ErrorBody(error.object))

    def _start(self, started: Started) -> bytes:
        self._tier = service_tier_of(started.gear)
        out: list[bytes] = []
        for index in range(self._choices):
            self._texts.append(sse.TextTemplate(self._chunk(ChunkChoice(index, ChunkDelta(content=sse.SLOT)))))
            first = ChunkChoice(index, ChunkDelta(role="assistant", content=""))
            out.append(sse.data(self._frame([first], usage=self._usage, seed=started.seed)))
        return b"".join(out)

    def _delta(self, delta: Delta) -> bytes:
        if self._logprobs and delta.logprobs:
            chosen = ChatLogprobs(chosen_tokens(delta.logprobs))
            return self._chunk(ChunkChoice(delta.choice, ChunkDelta(content=delta.text), logprobs=chosen))
        return self._texts[delta.choice].fill(delta.text) if delta.text else b""

    def _chunk(self, choice: ChunkChoice) -> bytes:
        return sse.data(self._frame([choice], usage=self._usage))

    def _frame(
        self, choices: list[ChunkChoice], *, usage: CompletionUsage | UnsetType | None, seed: int | UnsetType = UNSET
    ) -> ChatChunk:
        return ChatChunk(
            id=f"chatcmpl-{self._heading.turn_id}",
            created=self._heading.created,
            model=self._heading.model.id,
            service_tier=self._tier,
            choices=choices,
            usage=usage,
            seed=seed,
        )


class PlainChat:
    """One object, when the last choice is complete."""

    def __init__(self, heading: Heading, *, choices: int, logprobs: bool) -> None:
        self._heading = heading
        self._logprobs = logprobs
        self._gathered = Gathered(choices)

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        self._gathered.take(batch)
        return b""

    def end(self, usage: Usage) -> bytes:
        started = self._gathered.started
        completion = ChatCompletion(
            id=f"chatcmpl-{self._heading.turn_id}",
            created=self._heading.created,
            model=self._heading.model.id,
            choices=[self._choice(index, choice) for index, choice in enumerate(self._gathered.choices)],
            usage=completion_usage(usage),
            service_tier=service_tier_of(started.gear),
            seed=started.seed,
        )
        return msgspec.json.encode(completion)

    def fail(self, error: WireError, usage: Usage) -> bytes:
        return error.body()

    def _choice(self, index: int, choice: Choice) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=AnswerMessage(choice.text),
            logprobs=ChatLogprobs(chosen_tokens(choice.logprobs)) if self._logprobs else None,
            finish_reason=choice.reason,
        )
