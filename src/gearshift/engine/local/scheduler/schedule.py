"""The decision about the next step: which gears are in it, and the rows of every sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gearshift.engine.local.cost import UNMEASURED, StepCost
from gearshift.engine.local.scheduler.balance import AHEAD_STEPS, BEHIND_STEPS, Account, Balance
from gearshift.engine.local.scheduler.demand import BLOCK_TOKENS, D, Demand, Limits, Step, seconds_of
from gearshift.engine.local.scheduler.rows import Room, chunk_beside, grant_prompts, grant_streams, passed
from gearshift.engine.local.scheduler.seating import victim

MOST_LEFT_OUT = 32
"""Steps in a row that may leave out a gear with work, for the share of a higher one; then all gears take part. So
while cache blocks last, every stream of every gear advances at least once in MOST_LEFT_OUT + 1 steps."""

MOST_FOR_PROMPTS = 8
"""Steps in a row that may leave out a gear only because a prompt of a gear with a share is computed: it has not
earned more than its share, and an endless flow of such prompts must leave the others something."""


def schedule(
    seated: Sequence[D],
    limits: Limits,
    free_blocks: int,
    cost: StepCost = UNMEASURED,
    balance: Balance = Balance(),  # noqa: B008 - immutable
) -> Step[D]:
    """The next step over the seated sequences. Nothing that is passed in is changed.

    A gear with a share that is behind it, or that has a prompt to compute, has the step for itself and the gears
    above it; otherwise all gears take part. Streams come first, one row each, then drafts as far as they pay; what
    is left of the chunk goes to prompts. While cache blocks last, a stream advances in every step in which its gear
    takes part, and a prompt is overtaken in at most PATIENCE of these steps between two in which it advances.

    Args:
        free_blocks: cache blocks that nobody holds.
        cost: the measured cost of steps on this machine.
        balance: of the step before.
    """
    able = [d for d in seated if not (d.waits and d.wanted - d.computed > 1)]
    least = _least_rank(able, balance)
    part = [d for d in able if d.rank >= least]
    streams = [d for d in part if d.wanted - d.computed == 1]
    prompts = [d for d in part if d.wanted - d.computed > 1]
    blocks = free_blocks - _blocks_due(streams)
    if blocks < 0:
        return Step(balance=balance, preempt=victim(seated))

    beyond_first = limits.rows - len(streams)
    chunk = min(_chunk(streams, prompts, limits, cost), beyond_first)
    lacking = sum(d.wanted - d.computed for d in prompts)
    # Drafts take no block that a stream which is left out now will need for its next token.
    spare = max(0, blocks - _blocks_due(d for d in able if d.rank < least and d.wanted - d.computed == 1))
    for_drafts = Room(beyond_first // 2 if prompts else beyond_first, spare)
    rows, blocks = for_drafts.rows, blocks - spare
    granted = grant_streams(streams, prompts, min(lacking, chunk), for_drafts, cost)
    for_prompts = Room(min(chunk, beyond_first - (rows - for_drafts.rows)), blocks + for_drafts.blocks)
    grants = grant_prompts(prompts, _urgent(able) if least < _top(prompts) else set(), for_prompts)
    if prompts and not streams and not grants:
        return Step(balance=balance, preempt=victim(seated))
    return Step(
        granted,
        grants,
        passed(prompts, grants),
        _balance_after(balance, able, [*granted, *grants], limits, cost, full=len(part) == len(able)),
    )


def _least_rank(able: Sequence[Demand], balance: Balance) -> int:
    """The lowest gear of the next step."""
    lowest = min((d.rank for d in able), default=0)
    if balance.left_out >= MOST_LEFT_OUT:
        return lowest
    urgent = _urgent(able) if balance.left_out < MOST_FOR_PROMPTS else set[int]()
    behind = (d.rank for d in able if d.share > 0 and (d.rank in urgent or balance.lag(d.rank) > 0))
    return max(behind, default=lowest)


def _urgent(able: Iterable[Demand]) -> set[int]:
    """Gears with a share that have a prompt to compute."""
    return {d.rank for d in able if d.share > 0 and d.wanted - d.computed > 1}


def _top(demands: Iterable[Demand]) -> int:
    return max((d.rank for d in demands), default=0)


def _blocks_due(streams: Iterable[Demand]) -> int:
    """Cache blocks that the next token of each stream takes."""
    return sum(d.computed == d.held * BLOCK_TOKENS for d in streams)


def _chunk(streams: Sequence[Demand], prompts: Sequence[Demand], limits: Limits, cost: StepCost) -> int:
    """Most rows of prompts in a step."""
    if not streams:
        return limits.rows
    return chunk_beside(streams, prompts, limits.chunk, cost)


def _balance_after(
    balance: Balance,
    able: Sequence[Demand],
    grants: Sequence[tuple[Demand, int]],
    limits: Limits,
    cost: StepCost,
    full: bool,
) -> Balance:
    shares = {d.rank: d.share for d in able if d.share > 0}
    if not shares:
        return Balance()
    accounts = [
        Account(rank, share, seconds_of(((d, rows) for d, rows in grants if d.rank == rank), cost))
        for rank, share in shares.items()
    ]
    return balance.after(
        accounts,
        seconds_of(grants, cost),
        most_ahead=AHEAD_STEPS * cost.seconds(len(able)),
        most_behind=BEHIND_STEPS * cost.seconds(limits.rows),
        full=full,
    )
