"""Answers of the legacy completions endpoint. Chunks and whole answers have the same shape there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.catalog import service_tier_of
from gearshift.engine.protocol import ChoiceEnd, Delta, EngineEvent, Started
from gearshift.wire.answer import FINGERPRINT, Heading
from gearshift.wire.chunks import ChunkStream, StreamOptions
from gearshift.wire.errors import WireError
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


class CompletionStream(ChunkStream[TextChoice]):
    """Chunks: the text as it comes, a reason and the seed for every choice, counts if asked for."""

    def __init__(self, heading: Heading, choices: int, options: StreamOptions | None, *, logprobs: int | None) -> None:
        super().__init__(heading, choices, options)
        self._logprobs = logprobs
        self._offsets = [0] * choices

    def start(self, seed: int) -> bytes:
        return b""

    def text(self, choice: int, text: str) -> TextChoice:
        return TextChoice(choice, text)

    def with_logprobs(self, delta: Delta) -> TextChoice | None:
        if self._logprobs is None:
            return None
        offset = self._offsets[delta.choice]
        self._offsets[delta.choice] = offset + len(delta.text)
        return TextChoice(delta.choice, delta.text, logprobs=legacy_logprobs(delta.logprobs, offset, self._logprobs))

    def over(self, end: ChoiceEnd) -> bytes:
        return self.chunk(TextChoice(end.choice, "", finish_reason=end.reason), self.started.seed)

    def frame(
        self, choices: list[TextChoice], usage: CompletionUsage | UnsetType | None, seed: int | UnsetType = UNSET
    ) -> TextCompletion:
        return _frame(self._heading, self.started, choices, usage, seed)


class PlainCompletion:
    """One object, when the last choice is complete."""

    def __init__(self, heading: Heading, choices: int, *, logprobs: int | None) -> None:
        self._heading = heading
        self._alternatives = logprobs
        self._gathered = Gathered(choices)

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        self._gathered.take(batch)
        return b""

    def end(self) -> bytes:
        started = self._gathered.started
        choices = [self._choice(index, choice) for index, choice in enumerate(self._gathered.choices)]
        usage = completion_usage(self._heading.usage())
        return msgspec.json.encode(_frame(self._heading, started, choices, usage, started.seed))

    def fail(self, error: WireError) -> bytes:
        return error.body()

    def _choice(self, index: int, choice: Choice) -> TextChoice:
        alternatives = self._alternatives
        return TextChoice(
            index=index,
            text=choice.text,
            logprobs=None if alternatives is None else legacy_logprobs(choice.logprobs, 0, alternatives),
            finish_reason=choice.reason,
        )


def _frame(
    heading: Heading,
    started: Started,
    choices: list[TextChoice],
    usage: CompletionUsage | UnsetType | None,
    seed: int | UnsetType,
) -> TextCompletion:
    return TextCompletion(
        id=f"cmpl-{heading.turn_id}",
        created=heading.created,
        model=heading.model.id,
        choices=choices,
        service_tier=service_tier_of(started.gear),
        usage=usage,
        seed=seed,
    )
