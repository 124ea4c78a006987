"""The first steps of a model, before anyone waits: they touch its memory and tell what steps cost on this machine.

Without them the scheduler would have to guess which drafts pay, and learn it at the expense of the first turns.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Sequence

from gearshift.catalog import GEARS
from gearshift.engine.local.batch import Forward, Seats, build
from gearshift.engine.local.cost import StepCost, rising
from gearshift.engine.local.mailbox import Mailbox
from gearshift.engine.local.scheduler import BLOCK_TOKENS, Step, blocks_for
from gearshift.engine.local.sequence import Choice, Turn, Vocabulary
from gearshift.engine.protocol import Sampling

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 48)
"""Numbers of rows that are tried."""

BUDGET_S = 0.4
"""No further round begins after so many seconds; two are run in any case."""

_MOST_ROUNDS = 5


def first_cost(
    forward: Forward, seats: Seats, blocks: int, vocabulary: Vocabulary, rows: Sequence[int] = ROWS
) -> StepCost:
    """What steps of one sequence cost, each row choosing a token.

    The best of a few rounds counts for each number of rows: what disturbs a step only makes it longer.

    Args:
        seats: of the lane, with at least one free.
        blocks: cache blocks of the lane; the first ones are written to.
    """
    rows = [r for r in rows if r <= min(blocks, seats.tables.shape[1]) * BLOCK_TOKENS]
    choice = _sequence(vocabulary, rows[-1])
    seats.seat(choice)
    for block in range(blocks_for(rows[-1])):
        seats.tables[choice.seat, block] = block
    best = dict.fromkeys(rows, float("inf"))
    began = time.perf_counter()
    try:
        for round_number in range(_MOST_ROUNDS):
            if round_number > 1 and time.perf_counter() - began > BUDGET_S:
                break
            for r in rows:
                batch = build(Step(streams=[(choice, r)]), seats)
                start = time.perf_counter()
                forward(batch)
                best[r] = min(best[r], time.perf_counter() - start)
    finally:
        seats.leave(choice)
    return StepCost(rising([(float(r), seconds) for r, seconds in best.items()]))


def _sequence(vocabulary: Vocabulary, rows: int) -> Choice:
    """A stream at its beginning, with drafts for so many rows."""
    loop = asyncio.new_event_loop()
    loop.close()
    turn = Turn(
        turn_id="warm-up",
        prompt=array("i", [0]),
        digests=[],
        root=b"",
        sampling=Sampling(temperature=0.0),
        seed=0,
        limit=1,
        gear=GEARS["standard"],
        vocabulary=vocabulary,
        mailbox=Mailbox(loop),
    )
    choice = Choice.of(turn, 0, 0)
    choice.draft = array("i", [place % len(vocabulary.pieces) for place in range(1, rows)])
    return choice
