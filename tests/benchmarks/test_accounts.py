"""The benchmark of bookings counts what it booked, and notices books that do not add up."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.accounts.__main__ import measured
from sqlalchemy import text

from gearshift.accounts.tables import open_database, sqlite_url


def test_a_small_run(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path / "accounts.db"))
    figures = measured(database, accounts=7, turns=10, rounds=2)
    assert len(figures.pairs_ms) == 10 and len(figures.admissions_per_s) == 2
    assert min(*figures.pairs_ms, *figures.admissions_per_s) > 0
    database.dispose()


def test_a_lost_entry_is_noticed(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path / "accounts.db"))
    lose = "CREATE TRIGGER lose AFTER INSERT ON entries WHEN NEW.id = 50 BEGIN DELETE FROM entries WHERE id = 50; END"
    with database.begin() as connection:
        connection.execute(text(lose))
    with pytest.raises(SystemExit, match="do not add up"):
        measured(database, accounts=7, turns=10, rounds=2)
    database.dispose()
