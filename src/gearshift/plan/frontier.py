"""What a share costs: speed of fast streams against the throughput of all, over shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gearshift.catalog import GEARS, Gear, GearName
from gearshift.plan.simulate import Machine, Result, simulate
from gearshift.plan.trace import TracedTurn

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
MOST_PROMISED = 0.95
"""Shares of all gears together; the rest is for those without one."""


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A share of the fastest gear, and what came of it."""

    share: float
    result: Result


def with_shares(shares: Mapping[GearName, float], gears: Mapping[GearName, Gear] = GEARS) -> dict[GearName, Gear]:
    """Gears with other shares. Raises ValueError when they promise more than there is."""
    changed: dict[GearName, Gear] = {
        name: replace(gear, share=shares.get(name, gear.share)) for name, gear in gears.items()
    }
    promised = sum(gear.share for gear in changed.values())
    if promised > MOST_PROMISED + 1e-9 or any(gear.share < 0 for gear in changed.values()):
        each = ", ".join(f"{name}={gear.share:g}" for name, gear in changed.items())
        raise ValueError(f"shares must be 0 or more and together {MOST_PROMISED:g} at most, but are {each}")
    return changed


def frontier(
    trace: Sequence[TracedTurn],
    machine: Machine,
    gears: Mapping[GearName, Gear] = GEARS,
    seed: int = 0,
    until_s: float | None = None,
    shares: Sequence[float] = SHARES,
) -> Iterator[FrontierPoint]:
    """The trace under one share of `ultrafast` after the other; `priority` gets less where both do not fit."""
    for share in shares:
        priority = min(gears["priority"].share, max(0.0, MOST_PROMISED - share))
        changed = with_shares({"ultrafast": share, "priority": priority}, gears)
        yield FrontierPoint(share, simulate(trace, machine, changed, seed, until_s))
