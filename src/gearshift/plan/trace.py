"""Traces: turns with their sizes, gears and times, recorded or made up. A trace holds no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from gearshift.catalog import GearName

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class BadTrace(ValueError):
    """A trace cannot be read; the message names file, line and field."""


class TracedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a trace.

    Attributes:
        arrives_s: when it comes, from the beginning of the trace; with `after`, from the end of that turn.
        gear: the gear that serves it.
        prompt: its tokens.
        cached: tokens of the prompt that are found in the cache, at most all but one.
        output: tokens that it produces.
        odds: how likely a drafted token is to be kept when the one before it was.
        kept: of a recorded turn, how many drafted tokens could have been kept after each of its tokens; repeated when
            it is shorter than the output. It replaces `odds`.
        after: index in the trace of an earlier turn, without which this one does not come: a session.
    """

    arrives_s: Annotated[float, msgspec.Meta(ge=0)]
    gear: GearName
    prompt: _Positive
    output: _Positive
    cached: _Count = 0
    odds: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    kept: tuple[_Count, ...] = ()
    after: _Count | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """A made-up load of one gear: so many callers, each with one turn after the other."""

    gear: GearName
    streams: int
    prompt: int = 512
    output: int = 256
    odds: float = 0.7
    cached: int = 0


def synthetic(loads: Sequence[Load], turns: int = 1) -> list[TracedTurn]:
    """A trace in which every caller of `loads` has `turns` turns, each as soon as the one before has ended."""
    trace: list[TracedTurn] = []
    for load in loads:
        for _ in range(load.streams):
            for turn in range(turns):
                after = len(trace) - 1 if turn else None
                trace.append(TracedTurn(0.0, load.gear, load.prompt, load.output, load.cached, load.odds, after=after))
    return trace


def read_trace(path: Path) -> list[TracedTurn]:
    """A trace from a file of JSON lines, one object per turn with the fields of `TracedTurn`.

    Raises:
        BadTrace: a line is not such an object.
        OSError: the file cannot be read.
    """
    trace: list[TracedTurn] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            turn = msgspec.json.decode(line, type=TracedTurn)
        except msgspec.DecodeError as error:
            raise BadTrace(f"{path}, line {number}: {error}") from error
        if turn.cached >= turn.prompt:
            raise BadTrace(
                f"{path}, line {number}: cached is {turn.cached}, but of {turn.prompt} prompt tokens the last is "
                f"always computed; give {turn.prompt - 1} at most"
            )
        if turn.after is not None and turn.after >= len(trace):
            raise BadTrace(
                f"{path}, line {number}: after is {turn.after}, but must be the index of an earlier turn, from 0"
            )
        trace.append(turn)
    if not trace:
        raise BadTrace(f"{path} holds no turns; give one JSON object per line")
    return trace
