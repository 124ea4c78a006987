"""The events of a turn gathered into whole choices, for answers that leave in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gearshift.engine.protocol import Called, ChoiceEnd, Delta, EngineEvent, Started, TokenLogprob

Reason = Literal["stop", "length", "tool_calls"]


@dataclass(slots=True)
class Choice:
    """One choice so far."""

    parts: list[str] = field(default_factory=list[str])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    calls: list[Called] = field(default_factory=list[Called])
    reason: Literal["stop", "length"] = "stop"

    @property
    def finish_reason(self) -> Reason:
        """Why it ended, as clients know it: an answer that ended in calls waits for their outputs."""
        return "tool_calls" if self.calls and self.reason == "stop" else self.reason

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(self.parts)


class Gathered:
    """All choices of an answer."""

    def __init__(self, choices: int) -> None:
        self.choices = [Choice() for _ in range(choices)]
        self.begun: Started | None = None
        """How the (first) turn of this answer started, once it has."""

    @property
    def started(self) -> Started:
        """The same, of a turn that has begun."""
        assert self.begun is not None, "an engine starts every turn before it yields anything else"
        return self.begun

    def take(self, batch: Sequence[EngineEvent]) -> None:
        """Add a batch."""
        for event in batch:
            if isinstance(event, Delta):
                choice = self.choices[event.choice]
                choice.parts.append(event.text)
                choice.logprobs.extend(event.logprobs)
            elif isinstance(event, ChoiceEnd):
                self.choices[event.choice].reason = event.reason
            elif isinstance(event, Called):
                self.choices[event.choice].calls.append(event)
            elif self.begun is None:
                self.begun = event
