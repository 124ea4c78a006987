"""Answers of the legacy completions endpoint. Chunks and whole answers have the same shape there."""

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
from gearshift.wire.logprobs import LegacyLogprobs, legacy_logprobs
from gearshift.wire.usage import CompletionUsage, completion_usage


class TextChoice(msgspec.Struct):
    """A choice, or what a chunk adds to it."""

    index: int
    text: str
    logprobs: LegacyLogprobs | None = None
    finish_reason: Reason | None = None


class TextCompletion(msgspec.Struct):
    """A whole answer or a chunk. `seed` and `service_tier` are extensions, as on the chat endpoint."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    service_tier: str
    object: Literal["text_completion"] = "text_completion"
    system_fingerprint: str = FINGERPRINT
    usage: CompletionUsage | UnsetType | None = UNSET
    seed: int | UnsetType = UNSET


class CompletionStream:
    """Chunks: the text as it comes, a reason for every choice, counts if asked for."""

    def __init__(self, heading: Heading, *, choices: int, logprobs: int | None, include_usage: bool) -> None:
        self._heading = heading
        self._logprobs = logprobs
        self._usage: UnsetType | None = None if include_usage else UNSET
        self._tier = ""
        self._seed = 0
        self._offsets = [0] * choices
        self._texts: list[sse.TextTemplate] = []

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        out: list[bytes] = []
        for event in batch:
            if isinstance(event, Delta):
                out.append(self._delta(event))
            elif isinstance(event, ChoiceEnd):
                last = TextChoice(event.choice, "", finish_reason=event.reason)
                out.append(sse.data(self._frame([last], usage=self._usage, seed=self._seed)))
            elif not self._texts:
                self._start(event)
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self, usage: Usage) -> bytes:
        if self._usage is UNSET:
            return sse.DONE
        return sse.data(self._frame([], usage=completion_usage(usage))) + sse.DONE

    def fail(self, error: WireError, usage: Usage) -> bytes:
        return sse.data(ErrorBody(error.object))

    def _start(self, started: Started) -> None:
        self._tier = service_tier_of(started.gear)
        self._seed = started.seed
        for index in range(len(self._offsets)):
            self._texts.append(sse.TextTemplate(self._chunk(TextChoice(index, sse.SLOT))))

    def _delta(self, delta: Delta) -> bytes:
        if self._logprobs is not None and delta.logprobs:
            offset = self._offsets[delta.choice]
            shape = legacy_logprobs(delta.logprobs, offset, self._logprobs)
            self._offsets[delta.choice] = offset + len(delta.text)
            return self._chunk(TextChoice(delta.choice, delta.text, logprobs=shape))
        return self._texts[delta.choice].fill(delta.text) if delta.text else b""

    def _chunk(self, choice: TextChoice) -> bytes:
        return sse.data(self._frame([choice], usage=self._usage))

    def _frame(
        self, choices: list[TextChoice], *, usage: CompletionUsage | UnsetType | None, seed: int | UnsetType = UNSET
    ) -> TextCompletion:
        return TextCompletion(
            id=f"cmpl-{self._heading.turn_id}",
            created=self._heading.created,
            model=self._heading.model.id,
            choices=choices,
            service_tier=self._tier,
            usage=usage,
            seed=seed,
        )


class PlainCompletion:
    """One object, when the last choice is complete."""

    def __init__(self, heading: Heading, *, choices: int, logprobs: int | None) -> None:
        self._heading = heading
        self._alternatives = logprobs
        self._gathered = Gathered(choices)

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        self._gathered.take(batch)
        return b""

    def end(self, usage: Usage) -> bytes:
        started = self._gathered.started
        completion = TextCompletion(
            id=f"cmpl-{self._heading.turn_id}",
            created=self._heading.created,
            model=self._heading.model.id,
            choices=[self._choice(index, choice) for index, choice in enumerate(self._gathered.choices)],
            service_tier=service_tier_of(started.gear),
            usage=completion_usage(usage),
            seed=started.seed,
        )
        return msgspec.json.encode(completion)

    def fail(self, error: WireError, usage: Usage) -> bytes:
        return error.body()

    def _choice(self, index: int, choice: Choice) -> TextChoice:
        alternatives = self._alternatives
        return TextChoice(
            index=index,
            text=choice.text,
            logprobs=None if alternatives is None else legacy_logprobs(choice.logprobs, 0, alternatives),
            finish_reason=choice.reason,
        )
