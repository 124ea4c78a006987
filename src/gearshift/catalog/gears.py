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
        share: least fraction of the engine's time that the gear as a whole is guaranteed while it has work: its
            streams run at no less than this part of the speed that they would have with the engine to themselves.
        rank: order in which gears are served; higher goes first.
        seats: sequences of the gear that may run at once; None takes all seats of the model.
        queue_wait_s: how long a turn may wait for a seat of the gear before it is told to come back later.
        price: what a token costs, as a multiple of the standard one.
    """

    name: GearName
    lookahead: int
    share: float
    rank: int
    seats: int | None = None
    queue_wait_s: float = 600.0
    price: float = 1.0


GEARS: dict[GearName, Gear] = {
    "standard": Gear("standard", lookahead=1, share=0.0, rank=0, seats=None, queue_wait_s=600.0, price=1.0),
    "priority": Gear("priority", lookahead=4, share=0.25, rank=1, seats=8, queue_wait_s=60.0, price=2.5),
    "ultrafast": Gear("ultrafast", lookahead=16, share=0.6, rank=2, seats=2, queue_wait_s=15.0, price=6.0),
}
"""The gears of every model.

Prices follow from rows and shares: at full load a token of a fast gear displaces standard tokens, by the rows of its
drafts that are not kept and by the time that its share takes from fuller steps. Simulated beside 32 standard streams,
on curves of a processor with and without a matrix unit and with half to 85% of drafted tokens kept, that is 0.9 to
1.2 for priority and 1.6 to 4.9 for ultrafast (0.1 to 0.4 on a large accelerator, where rows are nearly free). The rest
of 2.5 and 6 pays for seats and time that are kept ready. `gearshift simulate` tells it for a machine and a load.
"""

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
