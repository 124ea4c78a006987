"""One model in the loop: who waits, who is seated, and the four moves of a step: schedule, run, commit, and failing.

A lane belongs to the loop thread. It keeps cache blocks, seats and sequences in agreement; the decision about rows
is the scheduler's, the arithmetic the kernel's.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gearshift.catalog import GEARS, Gear, GearName
from gearshift.engine.local.batch import Batch, Chosen, Forward, Seats, build
from gearshift.engine.local.blocks import BlockPool, extend_chain
from gearshift.engine.local.cost import CostMeter
from gearshift.engine.local.lookahead import DrafterOf, Lookahead
from gearshift.engine.local.mailbox import Failure
from gearshift.engine.local.scheduler import (
    BLOCK_TOKENS,
    LEAST_CHUNK,
    Balance,
    Limits,
    Step,
    displaced,
    fits,
    next_to_sit,
    schedule,
)
from gearshift.engine.local.sequence import Choice, Turn, Vocabulary
from gearshift.engine.local.verification import Results
from gearshift.engine.local.warmup import first_cost
from gearshift.engine.protocol import EngineFailure, Overloaded

_FIRST_CHUNK = 256
"""Rows of prompts beside running streams until steps were measured."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """Sizes of a lane.

    Attributes:
        seats: sequences that may run at once.
        blocks: cache blocks.
        context: longest sequence, in tokens.
        rows: most rows of a step.
        stall_s: a step with running streams takes on prompt rows up to about this duration.
    """

    seats: int
    blocks: int
    context: int
    rows: int
    stall_s: float


@dataclass(slots=True)
class Timed:
    """A step with the time it took."""

    step: Step[Choice]
    batch: Batch
    chosen: Chosen | None
    seconds: float
    error: Exception | None = None


class Lane:
    """The sequences of one model and what they hold."""

    def __init__(
        self,
        name: str,
        forward: Forward,
        vocabulary: Vocabulary,
        limits: LaneLimits,
        drafter_of: DrafterOf | None = None,
        gears: Mapping[GearName, Gear] = GEARS,
    ) -> None:
        self.name = name
        self.vocabulary = vocabulary
        self.limits = limits
        self.waiting: list[Choice] = []
        self.seated: list[Choice] = []
        self.paused: list[Choice] = []
        """Sequences whose reader has fallen behind: they hold nothing and ask for nothing until it has caught up."""
        self.pool = BlockPool(limits.blocks)
        self.seats = Seats(limits.seats, limits.context, len(vocabulary.pieces))
        self.meter = CostMeter()
        self._forward = forward
        self._lookahead = Lookahead(drafter_of)
        self.gears = gears
        self._gear_seats = {gear.rank: gear.seats for gear in gears.values()}
        self._balance = Balance()
        self._cost = self.meter.cost()
        self._chunk = min(_FIRST_CHUNK, limits.rows)
        self._born = 0
        self.preempted = 0
        """Times that a sequence lost its blocks to others."""

    def warm_up(self) -> None:
        """Run a few steps of different sizes, so that the first turns find the memory touched and the costs known."""
        cost = first_cost(self._forward, self.seats, self.pool.total, self.vocabulary)
        self.meter = CostMeter(cost)
        self._cost = cost

    @property
    def busy(self) -> bool:
        """Whether there is anything to run."""
        return bool(self.seated or self.waiting)

    def add(self, turn: Turn) -> None:
        """A turn joins the queue, each of its choices as a sequence of its own. When all seats of its gear are taken,
        it falls to the highest lower gear that has some, if it may."""
        if turn.gear_fallback:
            turn.gear = self._gear_with_seats(turn.gear)
        turn.open = turn.sampling.n
        for index in range(turn.sampling.n):
            self.waiting.append(Choice.of(turn, index, self._born))
            self._born += 1

    def _gear_with_seats(self, asked: Gear) -> Gear:
        taken = Counter(choice.rank for choice in (*self.seated, *self.waiting, *self.paused))
        lower = sorted((gear for gear in self.gears.values() if gear.rank <= asked.rank), key=lambda gear: -gear.rank)
        return next((gear for gear in lower if gear.seats is None or taken[gear.rank] < gear.seats), lower[-1])

    def expire(self, now: float) -> list[Turn]:
        """Turns that have waited for a seat longer than their gear lets them; they have left the queue. Each is told
        when to come back. `now` and `Turn.arrived` are of one clock."""
        late = {choice.turn: None for choice in self.waiting if choice.late(now)}
        for turn in late:
            gear = turn.gear
            self.fail(
                turn,
                Overloaded(
                    f"All seats of the gear {gear.name} stayed taken for {gear.queue_wait_s:g} s. Come back later, ask "
                    "for another gear, or allow `gear_fallback`.",
                    gear.queue_wait_s,
                ),
            )
        return list(late)

    def cancel(self, turn: Turn) -> None:
        """A turn leaves: its blocks are free at once, its rows at the next step."""
        turn.cancelled = True
        self.waiting = [choice for choice in self.waiting if choice.turn is not turn]
        self.paused = [choice for choice in self.paused if choice.turn is not turn]
        for choice in [choice for choice in self.seated if choice.turn is turn]:
            self._leave(choice)

    def resume(self, turn: Turn) -> None:
        """The turn's reader has caught up: its sequences join the queue again."""
        self.waiting += [choice for choice in self.paused if choice.turn is turn]
        self.paused = [choice for choice in self.paused if choice.turn is not turn]

    def fail(self, turn: Turn, failure: Failure) -> None:
        """A turn cannot go on."""
        if turn.open and not turn.cancelled:
            turn.failure = failure
            self.cancel(turn)

    # --- schedule ---

    def schedule(self) -> Step[Choice]:
        """Seat who can be seated, attach what is in the cache, and decide the rows of the next step."""
        for choice in [choice for choice in self.seated if choice.turn.mailbox.full]:
            self._give_up(choice)
            self.paused.append(choice)
        while True:
            self._admit()
            self._attach()
            self._lookahead.draft(self.seated)
            limits = Limits(self.limits.rows, self._chunk)
            step = schedule(self.seated, limits, self.pool.free, self._cost, self._balance)
            if step.preempt is None:
                self._balance = step.balance
                return step
            self._preempt(step.preempt)

    def _admit(self) -> None:
        while self.waiting:
            head = next_to_sit(self.waiting, self.seated, self.seats.free, self._gear_seats)
            if head is None:
                return
            head.shared = self.pool.count_in_use(head.digests[: head.findable])
            while loser := displaced(self.seated, head, self.seats.free, self.pool.free):
                self._preempt(loser)
            if not self.seats.free or not fits(head, self.seated, self.pool.free):
                return
            self.waiting.remove(head)
            self.seated.append(head)
            self.seats.seat(head)
            for choice in self.waiting:
                choice.overtaken += choice.number < head.number

    def _attach(self) -> None:
        """Take over blocks that are in the cache; wait for those that another sequence is about to compute."""
        for choice in self.seated:
            if not choice.attaching:
                continue
            choice.waits = False
            while choice.held < choice.findable:
                digest = choice.digests[choice.held]
                block = self.pool.find(digest)
                if block is None:
                    choice.waits = self.pool.promised_to_other(digest, choice.number, choice.rank)
                    break
                self._hold(choice, block)
                choice.computed += BLOCK_TOKENS
            if not choice.waits:
                self.pool.promise(choice.digests[choice.held : choice.findable], choice.number, choice.rank)

    def _hold(self, choice: Choice, block: int) -> None:
        self.seats.tables[choice.seat, choice.held] = block
        choice.blocks.append(block)
        choice.held += 1

    def _preempt(self, choice: Choice) -> None:
        """Take the blocks away; the sequence computes its tokens again later, to the same bits."""
        self._give_up(choice)
        choice.preempted += 1
        self.preempted += 1
        self.waiting.append(choice)

    def _give_up(self, choice: Choice) -> None:
        self._leave(choice)
        choice.computed = 0
        choice.attaching, choice.waits = True, False

    def _leave(self, choice: Choice) -> None:
        self.pool.withdraw(choice.digests[: choice.findable], choice.number)
        self.pool.give_back(choice.blocks)
        choice.blocks, choice.held = [], 0
        self.seats.leave(choice)
        self.seated.remove(choice)

    # --- run ---

    def run(self, step: Step[Choice]) -> Timed:
        """Compute the rows of a step. An exception of the kernel is kept for `commit`."""
        for grants in (step.streams, step.prompts):
            for choice, rows in grants:
                while choice.held * BLOCK_TOKENS < choice.computed + rows:
                    self._hold(choice, self.pool.take())
        batch = build(step, self.seats)
        start = time.perf_counter()
        try:
            chosen = self._forward(batch)
        except Exception as error:
            return Timed(step, batch, None, time.perf_counter() - start, error)
        return Timed(step, batch, chosen, time.perf_counter() - start)

    # --- commit ---

    def commit(self, timed: Timed) -> Iterable[Turn]:
        """Take the results of a step into the sequences. Returns the turns that have something to tell."""
        if timed.chosen is None:
            return self._fail_step(timed)
        step = timed.step
        self.meter.observe(step.rows, timed.seconds, step.keys)
        self._cost = self.meter.cost()
        results = Results(timed.chosen, self.vocabulary)
        told: dict[Turn, None] = {}
        for choice, rows in step.streams:
            told[choice.turn] = None
            if choice.attaching:
                self._begin(choice)
            self._verify(choice, rows, results)
        for choice in step.passed:
            choice.overtaken += 1
        for choice, rows in step.prompts:
            choice.overtaken = 0
            if choice.attaching:
                self._begin(choice)
            if choice.computed + rows == choice.wanted:
                told[choice.turn] = None
                choice.computed += rows - 1
                self._verify(choice, 1, results, choice.computed - rows + 1)
            else:
                choice.computed += rows
                self._publish(choice, choice.computed - rows)
        if step.prompts:
            self._chunk = self._cost.rows_within(self.limits.stall_s, LEAST_CHUNK, self.limits.rows)
        return told

    def _verify(self, choice: Choice, rows: int, results: Results, before: int | None = None) -> None:
        """Take the tokens that a sequence chose in its `rows` rows, as far as its drafts were what it would have
        chosen. Only their positions count as computed, from `before` on; what a wrong draft left in the cache is
        overwritten by the next step."""
        turn = choice.turn
        before = choice.computed if before is None else before
        first, ids = results.take(rows, choice.draft)
        if turn.cancelled:  # another choice of this turn failed in this very step
            return
        if min(ids) < 0:
            at = choice.computed + next(i for i, token in enumerate(ids) if token < 0)
            problem = choice.matcher.problem if choice.matcher is not None else ""
            failure = f"the answer's grammar cannot be followed: {problem}" if problem else "no finite logits"
            self.fail(turn, EngineFailure(f"model {self.name} chose no token at position {at}: {failure}"))
            return
        wanted = turn.sampling.logprobs
        logprobs = () if wanted is None else [results.logprob(first + i, wanted) for i in range(len(ids))]
        taken = choice.accept(ids, logprobs, rows)
        choice.computed += taken
        self._lookahead.verified(choice, rows, ids[:taken])
        if choice.computed // BLOCK_TOKENS > before // BLOCK_TOKENS:
            self._publish(choice, before)
        if choice.reason is not None:
            self._leave(choice)

    def _begin(self, choice: Choice) -> None:
        """The first rows that a sequence computed itself: what it found before is what was cached."""
        choice.attaching = False
        if not choice.turn.started:
            choice.turn.start(cached_tokens=choice.computed)

    def _publish(self, choice: Choice, before: int) -> None:
        """Blocks that became full since `before` tokens were computed can be found from now on."""
        full = choice.computed // BLOCK_TOKENS
        if len(choice.digests) < full:
            extend_chain(choice.digests, choice.turn.root, choice.tokens)
        for index in range(before // BLOCK_TOKENS, full):
            self.pool.publish(choice.blocks[index], choice.digests[index])

    def _fail_step(self, timed: Timed) -> Iterable[Turn]:
        """The kernel refused or broke: every turn with rows in this step fails, the others go on."""
        _log.error("a step of %d rows of model %s failed", timed.step.rows, self.name, exc_info=timed.error)
        turns = {choice.turn: None for choice, _ in timed.step.streams}
        turns |= {choice.turn: None for choice, _ in timed.step.prompts}
        for turn in turns:
            failure = EngineFailure(f"a step of model {self.name} failed: {timed.error}")
            failure.__cause__ = timed.error
            self.fail(turn, failure)
        return turns
