"""Gears: how many rows of a step one stream may take, and the share of engine time that a gear is guaranteed.

The names on the wire (`service_tier`) map to gears here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GearName = Literal["standard", "priority", "ultrafast"]


@dataclass(frozen=True, slots=True)
class Gear:
    """One gear of a model.

    Attributes:
        name: the gear's name in our words.
        lookahead: rows of a step that one stream may take, drafts included.
        share: least fraction of the engine's time that the gear as a whole is guaranteed while it has work.
        rank: order in which gears are served; higher goes first.
    """

    name: GearName
    lookahead: int
    share: float
    rank: int


GEARS: dict[GearName, Gear] = {
    "standard": Gear("standard", lookahead=1, share=0.0, rank=0),
    "priority": Gear("priority", lookahead=4, share=0.2, rank=1),
    "ultrafast": Gear("ultrafast", lookahead=16, share=0.6, rank=2),
}

_WIRE_NAMES: dict[str, GearName] = {
    "default": "standard",
    "auto": "standard",
    "flex": "standard",
    "scale": "standard",
    "standard": "standard",
    "fast": "priority",
    "priority": "priority",
    "ultrafast": "ultrafast",
}


def gear_of(service_tier: str | None) -> GearName:
    """The gear that a `service_tier` asks for; None means standard.

    Raises:
        ValueError: the value is unknown; the message names the allowed ones.
    """
    if service_tier is None:
        return "standard"
    try:
        return _WIRE_NAMES[service_tier]
    except KeyError:
        allowed = ", ".join(_WIRE_NAMES)
        raise ValueError(f"Unknown service tier {service_tier!r}; allowed: {allowed}") from None


def service_tier_of(gear: GearName) -> str:
    """The `service_tier` by which a gear that served is named; standard is `default`, as clients know it."""
    return "default" if gear == "standard" else gear


SERVICE_TIERS: tuple[str, ...] = tuple(_WIRE_NAMES)
"""Every value of `service_tier` that `gear_of` accepts."""
