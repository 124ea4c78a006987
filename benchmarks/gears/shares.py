"""What a share costs, measured: engines whose ultrafast gear is guaranteed more or less of the time."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gears.measuring import Bench
from benchmarks.gears.turns import EDITS
from gearshift.catalog import GEARS, Gear, GearName
from gearshift.engine.local.load import EngineOptions
from gearshift.plan.frontier import MOST_PROMISED, with_shares

MEASURED = (0.2, 0.4, 0.6, 0.8)
SIMULATED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def share_plan(share: float) -> str:
    """Name of the slices of a share."""
    return f"share {share:g}"


def gears_with(share: float) -> dict[GearName, Gear]:
    """Gears in which ultrafast has this share; priority gets less where both do not fit."""
    return with_shares({"ultrafast": share, "priority": min(GEARS["priority"].share, MOST_PROMISED - share)})


def frontier_turns(bench: Bench) -> list[str]:
    """The turns of the frontier: an edit-like one of each of two kinds, or else whatever there is."""
    names = bench.some()
    edits = [name for name in names if bench.collected.turns[name].kind in EDITS]
    longest = sorted(edits or names, key=lambda name: -len(bench.collected.expected[name]))
    return longest[:1] if bench.settings.quick else longest[:2]


async def measure_shares(bench: Bench, shares: Sequence[float], rounds: int) -> None:
    """Each share on an engine of its own."""
    for round_number in range(rounds):
        for share in shares if round_number % 2 == 0 else list(reversed(shares)):
            async with bench.sibling(EngineOptions(gears=gears_with(share))) as other:
                await other.warm_up()
                for name in frontier_turns(bench):
                    await other.loaded(name, "ultrafast", round_number, share_plan(share))
