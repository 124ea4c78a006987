"""Who gets a seat: the order of the queue, room in the cache, a gear's seats, and who makes place for a faster turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gearshift.engine.local.scheduler.demand import PATIENCE, PROTECTED_AFTER, D, Demand, blocks_for


def order(d: Demand) -> tuple[int, int, int]:
    """Whoever was overtaken too often goes first, then higher gears, then older ones."""
    return (0, 0, d.number) if d.overtaken >= PATIENCE else (1, -d.rank, d.number)


def next_in_line(waiting: Iterable[D]) -> D:
    """The sequence that gets the next seat. Whoever was overtaken too often goes first, then higher gears."""
    return min(waiting, key=order)


def next_to_sit(
    waiting: Iterable[D], seated: Sequence[Demand], free_seats: int, gear_seats: Mapping[int, int | None]
) -> D | None:
    """The sequence that is seated next, if blocks allow, or None.

    Args:
        free_seats: seats of the lane that nobody sits on. Without any, only a sequence that may displace another
            comes into question.
        gear_seats: by rank, how many sequences of a gear may sit at once; None or absent means all.
    """
    taken = Counter(d.rank for d in seated)
    allowed = [d for d in waiting if (most := gear_seats.get(d.rank)) is None or taken[d.rank] < most]
    if free_seats <= 0:
        allowed = [d for d in allowed if displaceable(seated, d)]
    return next_in_line(allowed) if allowed else None


def fits(candidate: Demand, seated: Sequence[Demand], free_blocks: int) -> bool:
    """Whether a waiting sequence can be seated now: its known tokens find room beside what the seated ones still
    lack, with one block to grow for each of them. The last keeps a preempted sequence from coming straight back."""
    lacking = sum(blocks_for(d.wanted) - d.held for d in seated)
    return free_blocks - lacking - len(seated) >= blocks_for(candidate.wanted) - candidate.shared


def displaced(seated: Sequence[D], candidate: Demand, free_seats: int, free_blocks: int) -> D | None:
    """The sequence that makes place for a waiting one of a gear with a share, or None when none needs to or would help.

    Its blocks are taken away as in a preemption; ask again until there is place. The newest of the lowest gear
    below the candidate's goes, and none that was preempted too often.
    """
    if free_seats > 0 and fits(candidate, seated, free_blocks):
        return None
    others = displaceable(seated, candidate)
    if not others:
        return None
    gone = {d.number for d in others}
    stay = [d for d in seated if d.number not in gone]
    if not fits(candidate, stay, free_blocks + sum(d.held for d in others)):
        return None
    return victim(others)


def displaceable(seated: Iterable[D], candidate: Demand) -> list[D]:
    """The seated sequences that may have to make place for a candidate."""
    if candidate.share <= 0:
        return []
    return [d for d in seated if d.rank < candidate.rank and d.preempted < PROTECTED_AFTER]


def victim(seated: Iterable[D]) -> D:
    """The sequence that gives up its blocks: the newest of the lowest gear."""
    return max(seated, key=lambda d: (d.preempted < PROTECTED_AFTER, -d.rank, d.number))
