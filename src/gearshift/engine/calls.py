"""Tool calls read out of the text of a turn's events, for any engine whose models write them as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gearshift.conversation import Tool, ToolCall
from gearshift.engine.protocol import Called, Calls, ChoiceEnd, Delta, EngineEvent, Generation
from gearshift.tools import CallReader, Kind, ReadCall

Batch = Sequence[EngineEvent]


def reader_of(generation: Generation) -> Callable[[Batch], Batch] | None:
    """What turns the engine's batches into those with calls; None for a turn that may not call anything."""
    constraint = generation.constraint
    if not isinstance(constraint, Calls):
        return None
    return _TurnReader(generation.turn_id, constraint.tools).read


class _TurnReader:
    """The calls of all choices of a turn."""

    def __init__(self, turn_id: str, tools: Sequence[Tool]) -> None:
        self._turn_id = turn_id
        self._kinds: dict[str, Kind] = {tool.name: tool.kind for tool in tools}
        self._readers: dict[int, CallReader] = {}

    def read(self, batch: Batch) -> Batch:
        """A batch in which text is outside of calls, and calls stand where they became whole."""
        out: list[EngineEvent] = []
        for event in batch:
            if isinstance(event, Delta):
                reader = self._reader(event.choice)
                number = reader.calls
                text, calls = reader.push(event.text)
                logprobs = event.logprobs if text or not (calls or reader.holding) else ()
                out.append(replace(event, text=text, logprobs=logprobs))
                out += [self._called(event.choice, number + at, call) for at, call in enumerate(calls)]
            elif isinstance(event, ChoiceEnd):
                reader = self._reader(event.choice)
                number = reader.calls
                text, cut = reader.finish()
                if text:
                    out.append(Delta(event.choice, text, ()))
                if cut is not None:
                    out.append(self._called(event.choice, number, cut))
                out.append(event)
            else:
                out.append(event)
        return out

    def _reader(self, choice: int) -> CallReader:
        return self._readers.setdefault(choice, CallReader(self._kinds))

    def _called(self, choice: int, number: int, call: ReadCall) -> Called:
        # An id of the turn's own, so that no two calls of a conversation share one.
        call_id = f"call_{self._turn_id}_{choice}_{number}"
        return Called(choice, ToolCall(call_id, call.name, call.arguments, call.kind), call.whole)
