"""The meter between turns and the ledger: what a turn may cost at most, how far it has come, what it did cost.

It waits for the ledger on the event loop without blocking it. Text leaves once the progress before it is committed, at
most RECORD_TOKENS tokens or RECORD_S seconds apart: after a kill a turn is charged what was recorded last, which is
never more than its client could have received.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from gearshift.accounts.books import BookedTurn, Demand, Granted, Refusal
from gearshift.accounts.ledger import Answer, Ledger, LedgerClosed, Progress
from gearshift.accounts.plans import Plans
from gearshift.accounts.prices import BadPrice, Price, Tokens
from gearshift.accounts.refusals import BooksUnavailable, TankEmpty
from gearshift.caller import Usage
from gearshift.catalog import GEARS, GearName

_log = logging.getLogger(__name__)

RECORD_TOKENS = 64
RECORD_S = 0.05
PATIENCE_S = 2.0
"""How long text waits for its record when the database is slow; then it leaves, and the record follows."""
ADMISSION_S = 10.0
"""How long a turn waits to be admitted when the database is slow."""


class Booking:
    """One admitted turn. `close` it exactly once; closing again does nothing."""

    def __init__(self, ledger: Ledger, price: Price, granted: Granted) -> None:
        self.granted = granted
        self._ledger = ledger
        self._price = price
        self._turn: BookedTurn = granted.turn
        self._recorded_at = -RECORD_S
        self._recorded = 0
        self._usage: Usage | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def progress(self, usage: Usage) -> None:
        """Text up to `usage` is about to leave: record it first where a record is due."""
        self._usage = usage
        now = time.monotonic()
        if usage.completion_tokens - self._recorded < RECORD_TOKENS and now - self._recorded_at < RECORD_S:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(RECORD_S, self._late)
            return
        done = self._record(usage)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.shield(asyncio.wrap_future(done))
        except TimeoutError:
            pass
        except LedgerClosed:
            _log.warning("turn %s outlives the ledger; it is charged as recorded", self._turn.id)

    def close(self, usage: Usage) -> None:
        """The turn is over, however it ended: charge what it used. Waits for nothing."""
        if self._closed:
            return
        self._closed = True
        self._stop_timer()
        self._ledger.record(self._progress(usage, last=True))

    def _late(self) -> None:
        """Nothing came after text that left without a record of its own."""
        self._timer = None
        if self._usage is not None and not self._closed:
            self._record(self._usage)

    def _record(self, usage: Usage) -> Future[Answer]:
        self._stop_timer()
        self._recorded_at, self._recorded = time.monotonic(), usage.completion_tokens
        return self._ledger.record(self._progress(usage, last=False))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _progress(self, usage: Usage, *, last: bool) -> Progress:
        tokens = Tokens(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        return Progress(self._turn.id, usage.gear, self._price.charge(tokens, usage.gear), tokens, last)


class Meter:
    """Admits turns of metered accounts."""

    def __init__(
        self,
        ledger: Ledger,
        plans: Plans,
        plan_of: Callable[[str], str | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """plan_of: the name of an account's plan; None where it has none and is not metered."""
        self._ledger = ledger
        self._plans = plans
        self._plan_of = plan_of
        self._clock = clock

    def metered(self, account: str) -> bool:
        """Whether turns of this account are booked at all."""
        return self._plan_of(account) is not None

    async def admit(
        self,
        turn: str,
        account: str,
        model: str,
        gear: GearName,
        prompt_tokens: int,
        output_limit: int,
        *,
        repeated: bool = False,
    ) -> Booking:
        """Reserve the worst case of a turn: its prompt, uncached, and `output_limit` tokens over all choices.

        repeated: the turn may have run before, and goes on with the charge that it had.

        Raises:
            TankEmpty: no tank can hold it.
            BooksUnavailable: the database does not answer, or a plan or a price is missing.
        """
        name = self._plan_of(account)
        plan = self._plans.plans.get(name or "")
        if plan is None:
            raise BooksUnavailable(
                f"The account {account!r} has the plan {name!r}, which the plans file does not give."
            )
        try:
            price = self._plans.prices.at(model, self._clock())
        except BadPrice as error:
            raise BooksUnavailable(str(error)) from None
        worst = Tokens(prompt_tokens, 0, output_limit)
        amounts: dict[GearName, int] = {one: price.charge(worst, one) for one in GEARS}
        answer = await self._answer(Demand(turn, account, plan, model, gear, amounts, repeated))
        if isinstance(answer, Refusal):
            raise TankEmpty(answer, model, gear, self._clock())
        assert isinstance(answer, Granted), "the ledger answers a demand with one of the two"
        return Booking(self._ledger, price, answer)

    async def _answer(self, demand: Demand) -> Answer:
        done = self._ledger.reserve(demand)
        try:
            # Not `wait_for`: in Python 3.11 it forgets a cancellation that comes together with the answer.
            async with asyncio.timeout(ADMISSION_S):
                return await asyncio.wrap_future(done)
        except TimeoutError:
            self._ledger.abandon(demand.turn)
            raise BooksUnavailable("The accounts database does not answer; try again in a moment.") from None
        except asyncio.CancelledError:
            # It may have been booked in the meantime.
            self._ledger.abandon(demand.turn)
            raise
        except LedgerClosed as error:
            raise BooksUnavailable(str(error)) from None
