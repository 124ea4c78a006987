"""What the streams of chat and legacy completions have in common: chunks without names, counts among them on demand,
and a mark at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.engine.protocol import Called, ChoiceEnd, Delta, EngineEvent, Started
from gearshift.wire import sse
from gearshift.wire.answer import Heading
from gearshift.wire.errors import ErrorBody, WireError
from gearshift.wire.usage import CompletionUsage, completion_usage

C = TypeVar("C", bound=msgspec.Struct)


class StreamOptions(msgspec.Struct):
    """What a stream carries beside the answer: counts in a last chunk, and running ones in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChunkStream(ABC, Generic[C]):
    """An answer in chunks, each with choices of one kind."""

    def __init__(self, heading: Heading, choices: int, options: StreamOptions | None) -> None:
        self._heading = heading
        self._choices = choices
        self._counts_last = bool(options and options.include_usage)
        self._counts_always = bool(options and options.continuous_usage_stats)
        # With usage asked for, every chunk carries the field, null until the last.
        self._usage: CompletionUsage | UnsetType | None = None if self._counts_last else UNSET
        self._started: Started | None = None
        self._texts: list[sse.TextTemplate] = []

    @abstractmethod
    def frame(
        self, choices: list[C], usage: CompletionUsage | UnsetType | None, seed: int | UnsetType = UNSET
    ) -> msgspec.Struct:
        """A chunk that holds these choices."""

    @abstractmethod
    def start(self, seed: int) -> bytes:
        """What leaves before the first text."""

    @abstractmethod
    def text(self, choice: int, text: str) -> C:
        """A choice that brings nothing but text."""

    @abstractmethod
    def with_logprobs(self, delta: Delta) -> C | None:
        """A choice that brings text and the log-probabilities of `delta`, where they are asked for."""

    @abstractmethod
    def over(self, end: ChoiceEnd) -> bytes:
        """The last chunk of a choice."""

    def called(self, event: Called) -> bytes:
        """A call of a tool; endpoints without tools have none."""
        raise AssertionError(f"{type(self).__name__} has no room for the call {event.call.name}")

    @property
    def started(self) -> Started:
        """How the (first) turn of this answer started."""
        assert self._started is not None, "an engine starts every turn before it yields anything else"
        return self._started

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        if self._counts_always:
            self._usage = completion_usage(self._heading.usage())
        out: list[bytes] = []
        for event in batch:
            if isinstance(event, Delta):
                out.append(self._delta(event))
            elif isinstance(event, ChoiceEnd):
                out.append(self.over(event))
            elif isinstance(event, Called):
                out.append(self.called(event))
            elif self._started is None:
                self._started = event
                slots = (self.chunk(self.text(index, sse.SLOT)) for index in range(self._choices))
                self._texts = [sse.TextTemplate(slot) for slot in slots]
                out.append(self.start(event.seed))
        return out[0] if len(out) == 1 else b"".join(out)

    def end(self) -> bytes:
        if not self._counts_last:
            return sse.DONE
        return sse.data(self.frame([], completion_usage(self._heading.usage()))) + sse.DONE

    def fail(self, error: WireError) -> bytes:
        return sse.data(ErrorBody(error.object))

    def chunk(self, choice: C, seed: int | UnsetType = UNSET) -> bytes:
        """One event with one choice."""
        return sse.data(self.frame([choice], self._usage, seed))

    def _delta(self, delta: Delta) -> bytes:
        if delta.logprobs and (choice := self.with_logprobs(delta)) is not None:
            return self.chunk(choice)
        if not delta.text:
            return b""
        if self._counts_always:
            return self.chunk(self.text(delta.choice, delta.text))
        return self._texts[delta.choice].fill(delta.text)
