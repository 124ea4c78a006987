"""How many rows: what drafts are worth beside the other rows of a step, and how prompts are cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gearshift.engine.local.cost import StepCost
from gearshift.engine.local.scheduler.demand import BLOCK_TOKENS, KEPT_AT_HAND, PATIENCE, D, Demand, blocks_for, keys_of
from gearshift.engine.local.scheduler.seating import order

STRETCH = 4.0
"""Prompts of lower gears make a step with a stream of a gear with a share last at most about so many times as long
as the rows of that gear alone."""

LEAST_CHUNK = 32
"""Prompt rows that STRETCH leaves in any case: smaller pieces would read all weights for little."""


@dataclass(slots=True)
class Room:
    """What is left for a step while it is being put together.

    Attributes:
        rows: rows that may still be added.
        blocks: cache blocks that may still be taken.
    """

    rows: int
    blocks: int

    def most_rows(self, d: Demand) -> int:
        """Rows of a sequence that find room, from the first one on."""
        return min(self.rows, (d.held + self.blocks) * BLOCK_TOKENS - d.computed)

    def take(self, d: Demand, rows: int) -> None:
        """Grant rows."""
        self.rows -= rows
        self.blocks -= max(0, blocks_for(d.computed + rows) - d.held)


def grant_streams(
    streams: Sequence[D], prompts: Sequence[Demand], prompt_rows: int, room: Room, cost: StepCost
) -> list[tuple[D, int]]:
    """The rows of the streams of a step, one each and as many drafts as pay.

    A drafted token is expected to be worth the odds that it and all before it in the draft are kept, times the
    weight of its sequence: a fast stream's drafts are bought with everybody's time, and for that its gear has its
    price. Drafted tokens are ordered by that worth, and of all beginnings of the order the one with the most worth per
    second is taken, at the measured cost of the rows beside the others of the step. When drafts do not pay, there
    are none; among equals, the tokens of all together can only become more.

    Args:
        prompts, prompt_rows: what else the step is going to hold.
        room: rows and blocks beyond the first row of every stream; what is granted is taken from it.
    """
    granted = {d.number: 1 for d in streams}
    drafting = [d for d in streams if d.drafts > 0 and d.odds > 0 and d.lookahead > 1]
    if drafting and room.rows > 0:
        offers = sorted(
            (
                (-d.weight * d.odds**place, d.number, d)
                for d in drafting
                for place in range(1, min(d.drafts, d.lookahead - 1) + 1)
            ),
            key=lambda offer: offer[:2],
        )[: room.rows]
        rows = len(streams) + prompt_rows
        keys = keys_of((d, 1) for d in streams) if cost.per_key else 0
        worth = sum(d.weight for d in streams) + sum(d.weight for d in prompts)
        best, taken = worth / cost.seconds(rows, keys), 0
        for i, (negative, _, d) in enumerate(offers):
            worth -= negative
            keys += int(KEPT_AT_HAND * (d.computed + 1))
            if (rate := worth / cost.seconds(rows + i + 1, keys)) > best:
                best, taken = rate, i + 1
        for _, number, _ in offers[:taken]:
            granted[number] += 1
    return [(d, _with_room(d, granted[d.number], room)) for d in streams]


def _with_room(d: Demand, rows: int, room: Room) -> int:
    """Cut drafts to the cache blocks that are left; the block of the first row is already set aside."""
    held = max(d.held, blocks_for(d.wanted))
    rows = min(rows, (held + room.blocks) * BLOCK_TOKENS - d.computed)
    room.rows -= rows - 1
    room.blocks -= max(0, blocks_for(d.computed + rows) - held)
    return rows


def chunk_beside(streams: Sequence[Demand], prompts: Sequence[Demand], chunk: int, cost: StepCost) -> int:
    """Most prompt rows beside running streams: `chunk`, and less when the prompts are of lower gears than a stream
    of a gear with a share."""
    top = max((d.rank for d in streams if d.share > 0), default=None)
    if top is None or chunk <= LEAST_CHUNK or any(d.rank >= top for d in prompts):
        return chunk
    fast = sum(1 + min(d.drafts, d.lookahead - 1) for d in streams if d.rank == top)
    return cost.rows_within(STRETCH * cost.seconds(fast), LEAST_CHUNK, chunk)


def grant_prompts(prompts: Iterable[D], urgent: set[int], room: Room) -> list[tuple[D, int]]:
    """The rows of the prompts of a step.

    Prompts of urgent gears (by rank) come first. When another one was overtaken too often, they leave it half of
    the rows; it goes first among the others, then higher gears, then older ones.
    """
    ordered = sorted(prompts, key=order)
    first = [d for d in ordered if d.rank in urgent]
    others = [d for d in ordered if d.rank not in urgent]
    kept = room.rows // 2 if first and others and others[0].overtaken >= PATIENCE else 0
    room.rows -= kept
    grants = _grant(first, room)
    room.rows += kept
    return grants + _grant(others, room)


def _grant(prompts: Sequence[D], room: Room) -> list[tuple[D, int]]:
    grants: list[tuple[D, int]] = []
    for d in prompts:
        rows = min(d.wanted - d.computed, room.most_rows(d))
        if rows > 0:
            grants.append((d, rows))
            room.take(d, rows)
    return grants


def passed(prompts: Sequence[D], grants: Sequence[tuple[D, int]]) -> list[D]:
    """Prompts that got no rows while a younger one did."""
    if len(prompts) == len(grants):
        return []
    served = {d.number for d, _ in grants}
    youngest = max(served, default=-1)
    return [d for d in prompts if d.number not in served and d.number < youngest]
