"""The ledger's writer: one thread that takes operations from many turns, applies them in order to the books and commits
them as a group, so that waiting for the disk is shared and the event loop never waits at all.

An operation that the database cannot take now (locked, full, away) stays at the head of the queue until it can; only
reservations whose turn has given up are dropped. What one operation does is in `books`; which is asked for, in `meter`.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from gearshift.accounts.books import Books, Demand, Granted, Refusal
from gearshift.accounts.leases import LEASE_S, ServerLock, close_abandoned, renew, resign
from gearshift.accounts.prices import Tokens
from gearshift.accounts.store import load, save
from gearshift.catalog import GearName

_log = logging.getLogger(__name__)

BATCH = 512
"""Most operations of one commit."""
_ATTEMPTS = 5
_LONGEST_PAUSE_S = 1.0
CLOSE_S = 10.0
"""How long the end of the server waits for a database that takes nothing; the next start closes what is left."""


class LedgerClosed(Exception):
    """The ledger has ended; nothing more is booked."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a turn has come: absolute figures, so that the last one stands for all before it."""

    turn: str
    gear: GearName
    charge: int
    tokens: Tokens
    last: bool = False
    """The turn is over: charge this and give back the rest."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """The turn ended before it learnt whether it was booked: close it with what was recorded."""

    turn: str


Answer = Granted | Refusal | None


@dataclass(slots=True)
class _Operation:
    what: Demand | Progress | Abandon
    done: Future[Answer] = field(default_factory=Future[Answer])


class Ledger:
    """Books turns of every account of one database; one per server process."""

    def __init__(self, database: Engine, clock: Callable[[], float] = time.time) -> None:
        """clock: Unix time, by which windows run."""
        self._database = database
        self._clock = clock
        self._owner = secrets.token_hex(8)
        self._lock = ServerLock(database)
        self._waiting: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._ends_at: float | None = None

    def start(self) -> None:
        """Close what servers that are gone left open, then take operations.

        Raises:
            AlreadyServed: another server works on this SQLite file.
        """
        self._lock.take()
        self._tend()
        self._thread.start()

    def reserve(self, demand: Demand) -> Future[Answer]:
        """Ask for a reservation; the answer is Granted or Refusal, once it is committed. Cancel it to give up."""
        return self._submit(demand)

    def record(self, progress: Progress) -> Future[Answer]:
        """Book progress or the end of a turn; done once it is committed. Never refused."""
        return self._submit(progress)

    def abandon(self, turn: str) -> None:
        """End a turn whose reservation was given up."""
        self._submit(Abandon(turn))

    def close(self) -> None:
        """Commit what is waiting, then end."""
        self._ends_at = time.monotonic() + CLOSE_S
        self._waiting.put(None)
        self._thread.join()
        try:
            with self._database.begin() as connection:
                resign(connection, self._owner)
        except SQLAlchemyError:
            _log.warning("the lease of this server stays in the accounts database until it ends by itself")
        self._lock.give_back()

    def _submit(self, what: Demand | Progress | Abandon) -> Future[Answer]:
        operation = _Operation(what)
        if self._ends_at is not None:
            operation.done.set_exception(LedgerClosed("The server is going down."))
        else:
            self._waiting.put(operation)
        return operation.done

    def _run(self) -> None:
        tended = time.monotonic()
        going = True
        while going:
            batch, going = self._take(max(0.0, tended + LEASE_S / 3 - time.monotonic()))
            if batch:
                self._write(batch)
            if going and time.monotonic() >= tended + LEASE_S / 3:
                tended = time.monotonic()
                try:
                    self._tend()
                except SQLAlchemyError as error:
                    _log.warning("the lease of this server could not be renewed: %s", error)

    def _take(self, patience_s: float) -> tuple[list[_Operation], bool]:
        """What waits, at most BATCH, and whether there is more to come."""
        batch: list[_Operation] = []
        try:
            first = self._waiting.get(timeout=patience_s)
            while first is not None:
                batch.append(first)
                if len(batch) == BATCH:
                    return batch, True
                first = self._waiting.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, False

    def _write(self, batch: list[_Operation]) -> None:
        """Commit a batch, however long it takes. A batch that the database refuses for its content is taken apart."""
        attempts, pause_s, again = 0, 0.01, False
        while batch := [one for one in batch if not one.done.cancelled()]:
            try:
                answers = self._commit(batch, again=again)
            except OperationalError as error:
                if self._ends_at is not None and time.monotonic() > self._ends_at:
                    _log.error("%d entries are left to the next start: %s", len(batch), error)
                    _fail(batch, error)
                    return
                if pause_s < _LONGEST_PAUSE_S:
                    _log.warning("the accounts database takes no entries now, trying again: %s", error.orig)
            except Exception as error:
                attempts += 1
                if attempts >= _ATTEMPTS:
                    self._one_by_one(batch, error)
                    return
            else:
                _deliver(batch, answers)
                return
            again = True
            time.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    def _one_by_one(self, batch: list[_Operation], error: Exception) -> None:
        if len(batch) == 1:
            _log.error("an operation cannot be booked: %s", batch[0].what, exc_info=error)
            _fail(batch, error)
            return
        for operation in batch:
            self._write([operation])

    def _commit(self, batch: Sequence[_Operation], *, again: bool) -> list[Answer]:
        """Apply and commit a batch. again: it may be stored already, for a commit can break after it was done."""
        accounts = {one.what.account for one in batch if isinstance(one.what, Demand)}
        known = {one.what.turn for one in batch if again or not isinstance(one.what, Demand) or one.what.repeated}
        with self._database.begin() as connection:
            books = load(connection, self._clock(), accounts, known)
            answers = [_apply(books, one.what) for one in batch]
            save(connection, books, self._owner)
        return answers

    def _tend(self) -> None:
        """Keep the own lease and close what owners without one left open."""
        with self._database.begin() as connection:
            renew(connection, self._owner, self._clock(), alone=self._lock.held)
        while close_abandoned(self._database, self._clock()):
            pass


def _apply(books: Books, what: Demand | Progress | Abandon) -> Answer:
    match what:
        case Demand():
            return books.reserve(what)
        case Progress():
            books.record(what.turn, what.gear, what.charge, what.tokens)
            if what.last:
                books.close(what.turn)
        case Abandon():
            books.close(what.turn)
    return None


def _deliver(batch: Sequence[_Operation], answers: Sequence[Answer]) -> None:
    for operation, answer in zip(batch, answers, strict=True):
        if operation.done.set_running_or_notify_cancel():
            operation.done.set_result(answer)


def _fail(batch: Sequence[_Operation], error: Exception) -> None:
    for operation in batch:
        if operation.done.set_running_or_notify_cancel():
            operation.done.set_exception(error)
