"""Which rows the next step computes: pure functions over plain data, without clock, thread or I/O.

One rule: a sequence has tokens that are known (`wanted`) and tokens that are in the cache (`computed`), and a
step lets the second catch up with the first. Prompts and running streams differ only in how far behind they are.
Nothing compiled is imported here, so that the simulator and other engines can use the same file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

BLOCK_TOKENS = 32
"""Positions per cache block; the kernel's own constant is checked against it when a model is loaded."""

PATIENCE = 16
"""How often younger sequences may be served before an older one that wants rows, until it goes first."""

PROTECTED_AFTER = 3
"""A sequence that was preempted so often is preempted again only when no other can be."""


@dataclass(slots=True, eq=False)
class Demand:
    """What the scheduler sees of one sequence.

    Attributes:
        number: order of arrival, unique; lower is older.
        rank: the gear's rank; higher goes first.
        wanted: tokens known so far, prompt and answer.
        computed: tokens whose keys and values are in the cache; below `wanted` while there is work.
        held: cache blocks that the sequence holds.
        shared: while it waits for a seat, blocks that it would find already in use by others.
        overtaken: how often younger sequences were served while this one wanted rows and got none.
        preempted: how often its blocks were taken away.
        waits: its next block is being computed by another sequence, so it needs no rows now.
        lookahead: rows of a step that it may take when it is a stream, drafts included.
        share: fraction of the engine's time that its gear is guaranteed.
        drafts: drafted tokens that are ready to follow the known ones.
        odds: how likely a drafted token is to be kept when the one before it was.
    """

    number: int
    rank: int
    wanted: int
    computed: int = 0
    held: int = 0
    shared: int = 0
    overtaken: int = 0
    preempted: int = 0
    waits: bool = False
    lookahead: int = 1
    share: float = 0.0
    drafts: int = 0
    odds: float = 0.0


D = TypeVar("D", bound=Demand)


@dataclass(frozen=True, slots=True)
class Limits:
    """Rows of a step.

    Attributes:
        rows: most rows of one step; at least the number of seats.
        chunk: most rows of prompts in a step in which streams run, so that none of them waits longer than this.
    """

    rows: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Step(Generic[D]):
    """The rows of the next step, or the sequence that must give up its blocks before there can be one.

    Attributes:
        streams: sequences that are one token behind, with the rows granted to each: one for the token that is known,
            the others for drafts.
        prompts: sequences that are further behind, with the rows granted to each.
        passed: sequences that wanted rows and got none while a younger one did.
        preempt: take this sequence's blocks away and ask again; nothing else is set then.
    """

    streams: list[tuple[D, int]] = field(default_factory=list[tuple[D, int]])
    prompts: list[tuple[D, int]] = field(default_factory=list[tuple[D, int]])
    passed: list[D] = field(default_factory=list[D])
    preempt: D | None = None

    @property
    def rows(self) -> int:
        """Rows of the step."""
        return sum(rows for _, rows in self.streams) + sum(rows for _, rows in self.prompts)


def blocks_for(tokens: int) -> int:
    """Cache blocks that hold `tokens` positions."""
    return -(-tokens // BLOCK_TOKENS)


def next_in_line(waiting: Iterable[D]) -> D:
    """The sequence that gets the next seat. Whoever was overtaken too often goes first, then higher gears."""
    return min(waiting, key=_order)


def fits(candidate: Demand, seated: Sequence[Demand], free_blocks: int) -> bool:
    """Whether a waiting sequence can be seated now: its known tokens find room beside what the seated ones still
    lack, with one block to grow for each of them. The last keeps a preempted sequence from coming straight back."""
    lacking = sum(blocks_for(d.wanted) - d.held for d in seated)
    return free_blocks - lacking - len(seated) >= blocks_for(candidate.wanted) - candidate.shared


def schedule(seated: Sequence[D], limits: Limits, free_blocks: int) -> Step[D]:
    """The next step over the seated sequences.

    Streams come first, one row each; what is left of the chunk goes to prompts, oldest of the highest gear first.
    While cache blocks last, a stream advances in every step, and a prompt is overtaken in at most PATIENCE steps
    between two in which it advances.
    """
    behind = [d for d in seated if d.wanted - d.computed == 1]
    free = free_blocks - sum(d.computed == d.held * BLOCK_TOKENS for d in behind)
    if free < 0:
        return Step(preempt=_victim(seated))
    streams: list[tuple[D, int]] = []
    for d in behind:
        held = max(d.held, blocks_for(d.wanted))
        rows = min(1 + d.drafts, d.lookahead, (held + free) * BLOCK_TOKENS - d.computed)
        streams.append((d, rows))
        free -= max(0, blocks_for(d.computed + rows) - held)
    if len(streams) == len(seated):
        return Step(streams)
    prompts = sorted((d for d in seated if d.wanted - d.computed > 1 and not d.waits), key=_order)
    rows_left = min(limits.chunk, limits.rows - sum(rows for _, rows in streams)) if streams else limits.rows
    grants: list[tuple[D, int]] = []
    for d in prompts:
        room = (d.held + free) * BLOCK_TOKENS - d.computed
        rows = min(d.wanted - d.computed, rows_left, room)
        if rows > 0:
            grants.append((d, rows))
            rows_left -= rows
            free -= max(0, blocks_for(d.computed + rows) - d.held)
    if prompts and not streams and not grants:
        return Step(preempt=_victim(seated))
    return Step(streams, grants, _passed(prompts, grants))


def _order(d: Demand) -> tuple[int, int, int]:
    return (0, 0, d.number) if d.overtaken >= PATIENCE else (1, -d.rank, d.number)


def _victim(seated: Sequence[D]) -> D:
    """The newest sequence of the lowest gear."""
    return max(seated, key=lambda d: (d.preempted < PROTECTED_AFTER, -d.rank, d.number))


def _passed(prompts: Sequence[D], grants: Sequence[tuple[D, int]]) -> list[D]:
    if len(prompts) == len(grants):
        return []
    served = {d.number for d, _ in grants}
    youngest = max(served, default=-1)
    return [d for d in prompts if d.number not in served and d.number < youngest]
