"""The writer thread over a real database: groups, contention, full disks, other servers, the end."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select, text

from gearshift.accounts.audit import audit
from gearshift.accounts.books import Granted, Refusal, WindowState
from gearshift.accounts.leases import LEASE_S, AlreadyServed
from gearshift.accounts.ledger import Ledger, LedgerClosed, Progress
from gearshift.accounts.prices import MICRO, Tokens
from gearshift.accounts.tables import CannotOpen, entries, open_database, owners, periods, sqlite_url, turns
from gearshift.accounts.tanks import Plan
from tests.accounts.plans_for_tests import demand, hours, main, plan_of

PLAN = plan_of(main(hours(100)))


class Clock:
    """Unix time in the test's hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def running(database: Engine, clock: Clock | None = None) -> Generator[Ledger]:
    ledger = Ledger(database, clock or Clock())
    ledger.start()
    try:
        yield ledger
    finally:
        ledger.close()


def reserve(ledger: Ledger, turn: str, credits: float, plan: Plan = PLAN, account: str = "ann") -> Granted | Refusal:
    answer = ledger.reserve(demand(turn, plan, credits, account=account)).result()
    assert answer is not None
    return answer


def progress(turn: str, credits: float, output: int = 1, *, last: bool = False) -> Progress:
    return Progress(turn, "standard", int(credits * MICRO), Tokens(1, 0, output), last)


def main_window(answer: Granted | Refusal) -> WindowState:
    assert isinstance(answer, Granted)
    return answer.states[0].windows[0]


def test_a_turn_leaves_exact_books(database: Engine) -> None:
    with running(database) as ledger:
        assert main_window(reserve(ledger, "t", 30)).balance == 70 * MICRO
        ledger.record(progress("t", 5)).result()
        ledger.record(progress("t", 7, 9, last=True)).result()
        ledger.record(progress("t", 9, 99, last=True)).result()
        assert main_window(reserve(ledger, "u", 93)).balance == 0
    with database.connect() as connection:
        row = connection.execute(select(turns).where(turns.c.id == "t")).one()
        assert (row.charge, row.reserved, row.output_tokens) == (7 * MICRO, 30 * MICRO, 9)
        kinds = connection.execute(select(entries.c.kind).order_by(entries.c.id)).scalars().all()
    assert kinds == ["grant", "reserve", "settle", "reserve"]
    assert audit(database) == []


def test_concurrent_turns_cannot_overdraw(database: Engine) -> None:
    answers: list[Granted | Refusal] = []

    def ask(caller: int) -> None:
        for turn in range(20):
            answers.append(reserve(ledger, f"{caller}-{turn}", 1))

    with running(database) as ledger:
        threads = [threading.Thread(target=ask, args=(caller,)) for caller in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(isinstance(answer, Granted) for answer in answers) == 100
    assert len(answers) == 200
    with database.connect() as connection:
        assert connection.execute(select(periods.c.balance)).scalar_one() == 0
    assert audit(database) == []


def test_a_thousand_reservations_that_are_given_up_leave_a_full_tank(database: Engine) -> None:
    plan = plan_of(main(hours(2000)))
    with running(database) as ledger:
        waiting = [ledger.reserve(demand(str(turn), plan, 1)) for turn in range(1000)]
        for turn, done in enumerate(waiting):
            done.cancel()
            ledger.abandon(str(turn))
        assert main_window(reserve(ledger, "next", 2000, plan)).balance == 0
    with database.connect() as connection:
        open_turns = connection.execute(select(turns.c.id).where(turns.c.closed.is_(None))).scalars().all()
    assert open_turns == ["next"]
    assert audit(database) == []


def test_the_next_server_closes_what_the_last_left_open(database: Engine) -> None:
    clock = Clock()
    with running(database, clock) as ledger:
        reserve(ledger, "used", 30)
        ledger.record(progress("used", 4)).result()
        reserve(ledger, "unused", 30)
    with running(database, clock) as ledger:
        assert audit(database, open_turns=False) == []
        assert main_window(reserve(ledger, "t", 0)).balance == 96 * MICRO
    with database.connect() as connection:
        kinds = connection.execute(select(entries.c.kind).order_by(entries.c.id)).scalars().all()
    assert sorted(kinds[3:5]) == ["release", "settle"]


def test_a_restart_leaves_the_turns_of_a_living_server_alone_until_its_lease_ends(database: Engine) -> None:
    if database.dialect.name == "sqlite":
        pytest.skip("a SQLite file has one server")
    clock = Clock()
    with running(database, clock) as first:
        reserve(first, "t", 30)
        with running(database, clock):
            assert audit(database) == []
            assert main_window(reserve(first, "u", 0)).balance == 70 * MICRO
        with running(database, clock) as second:
            assert main_window(reserve(second, "v", 0)).balance == 70 * MICRO
        clock.now += LEASE_S + 1
        with running(database, clock) as third:
            assert main_window(reserve(third, "w", 0)).balance == 100 * MICRO
        # Closed by another: its own end comes too late and changes nothing.
        first.record(progress("t", 5, last=True)).result()
        assert main_window(reserve(first, "x", 0)).balance == 100 * MICRO
    assert audit(database) == []


def test_two_servers_on_one_database_cannot_overdraw_together(database: Engine) -> None:
    if database.dialect.name == "sqlite":
        pytest.skip("a SQLite file has one server")
    answers: list[Granted | Refusal] = []

    def ask(ledger: Ledger, name: str) -> None:
        waiting = [ledger.reserve(demand(f"{name}-{turn}", PLAN, 1)) for turn in range(150)]
        answers.extend(answer for done in waiting if (answer := done.result()) is not None)

    with running(database) as first, running(database) as second:
        threads = [threading.Thread(target=ask, args=(one, name)) for one, name in ((first, "a"), (second, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(isinstance(answer, Granted) for answer in answers) == 100
    assert audit(database) == []


def test_a_sqlite_file_has_one_server(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path / "accounts.db"))
    with running(database), pytest.raises(AlreadyServed, match=r"works on .*accounts.db\. Stop it"):
        Ledger(database).start()
    with running(database):
        pass
    database.dispose()


def test_a_database_that_another_process_holds(tmp_path: Path) -> None:
    path = tmp_path / "accounts.db"
    database = open_database(sqlite_url(path))
    with running(database) as ledger:
        reserve(ledger, "t", 30)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        done = ledger.record(progress("t", 7, last=True))
        time.sleep(0.2)
        assert not done.done()
        other.execute("ROLLBACK")
        other.close()
        done.result()
    assert audit(database, open_turns=False) == []
    database.dispose()


def test_a_full_disk_keeps_a_settlement_waiting_and_loses_nothing(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path / "accounts.db"))
    room = threading.Event()
    room.set()

    @event.listens_for(database, "begin")
    def limit(connection: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 1000 if room.is_set() else pages}")

    plan = plan_of(main(hours(10_000)))
    with running(database) as ledger:
        for turn in range(200):
            reserve(ledger, f"{turn:050}", 1, plan)
        room.clear()
        # Enough entries that some page must be new.
        waiting = [ledger.record(progress(f"{turn:050}", 0.5, last=True)) for turn in range(200)]
        time.sleep(0.3)
        assert not waiting[-1].done()
        room.set()
        for done in waiting:
            done.result()
        assert main_window(reserve(ledger, "next", 0, plan)).balance == 9_900 * MICRO
    assert audit(database) == []
    database.dispose()


def test_after_its_end_a_ledger_books_nothing(database: Engine) -> None:
    with running(database) as ledger:
        waiting = [ledger.reserve(demand(str(turn), PLAN, 0)) for turn in range(50)]
    assert all(isinstance(done.result(), Granted) for done in waiting)
    with pytest.raises(LedgerClosed):
        ledger.reserve(demand("late", PLAN, 0)).result()
    with database.connect() as connection:
        assert connection.execute(select(func.count()).select_from(owners)).scalar_one() == 0


def test_audit_finds_what_is_wrong(database: Engine) -> None:
    with running(database) as ledger:
        reserve(ledger, "t", 30)
        ledger.record(progress("t", 7, last=True)).result()
    for spoil, found in (
        ("UPDATE periods SET balance = balance + 1", "balance"),
        ("UPDATE periods SET granted = granted + 1", "granted"),
        ("UPDATE turns SET charge = charge - 1", "expected"),
        ("DELETE FROM entries WHERE kind = 'settle'", "1 reservations not closed"),
        ("UPDATE turns SET closed = NULL", "still open"),
        ("DELETE FROM entries WHERE turn = 't'", "no entry at all"),
    ):
        with database.connect() as connection:
            connection.execute(text(spoil))
            connection.commit()
        assert any(found in line for line in audit(database, open_turns=False)), spoil


def test_an_address_that_is_none_says_what_to_give() -> None:
    with pytest.raises(CannotOpen, match="sqlite:///PATH"):
        open_database("nonsense")
    with pytest.raises(CannotOpen, match="cannot be opened"):
        open_database(sqlite_url(Path("/nowhere/at/all.db")))
