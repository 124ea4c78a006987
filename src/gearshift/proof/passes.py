"""The passes of a proof: in which gears and in what company the same cases are run. The first is the anchor that all
others are compared with: no drafts, one turn at a time, an empty cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gearshift.catalog import GEARS, GearName


@dataclass(frozen=True, slots=True)
class Pass:
    """One run over the cases.

    Attributes:
        name: shown to the reader.
        gears: the turns of a case take these in turn; where a case begins moves on by one from case to case.
        drafts: where drafts may come from. Never other turns' answers, or the gears would draft each other.
        at_once: conversations that run at once.
        others: streams of other callers that join and leave meanwhile.
        scope: cache scope; passes of one scope find each other's prompts.
        small: run by the engine whose cache is so small that sequences are preempted.
    """

    name: str
    gears: tuple[GearName, ...]
    drafts: Literal["off", "cold"] = "cold"
    at_once: int = 1
    others: int = 0
    scope: str = "idle"
    small: bool = False


_FASTEST_FIRST: tuple[GearName, ...] = ("ultrafast", "standard", "priority")
_AT_ONCE, _OTHERS = 6, 4


def _idle(gear: GearName) -> Pass:
    """One turn at a time; its prompt is found in the cache, where the anchor left it."""
    return Pass(f"{gear}, idle", (gear,))


def _loaded(gear: GearName) -> Pass:
    """Several at once among others; prompts are computed in pieces beside running streams. No more conversations than
    the gear has seats: a proof has no use for turns that are told to come back later."""
    at_once = min(_AT_ONCE, GEARS[gear].seats or _AT_ONCE)
    return Pass(f"{gear}, loaded", (gear,), at_once=at_once, others=_OTHERS, scope=gear)


ANCHOR = Pass("anchor", ("standard",), drafts="off")
PASSES: tuple[Pass, ...] = (
    ANCHOR,
    *(_idle(gear) for gear in GEARS),
    *(_loaded(gear) for gear in GEARS),
    Pass("switching, loaded", _FASTEST_FIRST, at_once=4, others=_OTHERS, scope="ultrafast"),
    Pass("switching, small cache", _FASTEST_FIRST, at_once=8, others=_OTHERS, scope="small", small=True),
)
