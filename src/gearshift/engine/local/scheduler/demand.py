"""The words of the scheduler: what it sees of a sequence, what a step may hold, and what it decides.

A sequence has tokens that are known (`wanted`) and tokens that are in the cache (`computed`), and a step lets the
second catch up with the first. Prompts and running streams differ only in how far behind they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gearshift.engine.local.cost import StepCost
from gearshift.engine.local.scheduler.balance import Balance

BLOCK_TOKENS = 32
"""Positions per cache block; the kernel's own constant is checked against it when a model is loaded."""

PATIENCE = 16
"""How often younger sequences may be served before an older one that wants rows, until it goes first."""

PROTECTED_AFTER = 3
"""A sequence that was preempted so often is preempted again only when no other can be."""

KEPT_AT_HAND = 0.4
"""Cost of a key for each further row of a sequence in a step: measured with 64 rows of one and of many sequences."""


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
        weight: what a token of it is worth beside those of others; the price of its gear.
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
    weight: float = 1.0
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
        passed: sequences that wanted rows and got none while a younger one of a gear in this step did.
        balance: where every gear stands after this step; the next call of `schedule` takes it.
        preempt: take this sequence's blocks away and ask again; nothing but the balance is set then.
    """

    streams: list[tuple[D, int]] = field(default_factory=list[tuple[D, int]])
    prompts: list[tuple[D, int]] = field(default_factory=list[tuple[D, int]])
    passed: list[D] = field(default_factory=list[D])
    balance: Balance = field(default_factory=Balance)
    preempt: D | None = None

    @property
    def rows(self) -> int:
        """Rows of the step."""
        return sum(rows for _, rows in self.streams) + sum(rows for _, rows in self.prompts)

    @property
    def keys(self) -> int:
        """Positions that the rows of the step attend to (see `keys_of`); to be asked before the step is committed."""
        return keys_of(self.streams) + keys_of(self.prompts)


def blocks_for(tokens: int) -> int:
    """Cache blocks that hold `tokens` positions."""
    return -(-tokens // BLOCK_TOKENS)


def keys_of(grants: Iterable[tuple[Demand, int]]) -> int:
    """Positions that granted rows attend to, as they count for the cost of a step: a row sees all positions before it
    and its own, but only the first of a sequence brings them from memory."""
    return sum(
        d.computed + 1 + int(KEPT_AT_HAND * ((rows - 1) * (d.computed + 1) + rows * (rows - 1) // 2))
        for d, rows in grants
        if rows > 0
    )


def seconds_of(grants: Iterable[tuple[Demand, int]], cost: StepCost) -> float:
    """What a step of these rows alone would take."""
    grants = list(grants)
    return cost.seconds(sum(rows for _, rows in grants), keys_of(grants))
