"""Who works on a database: every server holds a lease, and turns whose owner has none are closed by the others.

A SQLite file has one server at a time, known by a lock that the kernel drops when the process dies: whatever else is
open there is abandoned, at once. On PostgreSQL several servers work side by side, and a dead one's turns are closed
when its lease has run out.
"""

from __future__ import annotations

import fcntl
from io import IOBase
from pathlib import Path

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.engine import Connection

from gearshift.accounts.store import load, save
from gearshift.accounts.tables import owners, turns

LEASE_S = 15
"""How long a server's reservations are left alone after its last sign of life."""
_AT_ONCE = 500


class AlreadyServed(Exception):
    """Another server works on this SQLite file."""


class ServerLock:
    """The lock of a SQLite file's one server; nothing on PostgreSQL."""

    def __init__(self, database: Engine) -> None:
        name = database.url.database
        self._path = Path(f"{name}.server") if database.dialect.name == "sqlite" and name else None
        self._file: IOBase | None = None

    @property
    def held(self) -> bool:
        """Whether no other server can work on this database."""
        return self._file is not None

    def take(self) -> None:
        """Raises AlreadyServed."""
        if self._path is None:
            return
        file = self._path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise AlreadyServed(
                f"Another Gearshift works on {self._path.with_suffix('')}. Stop it, or set GEARSHIFT_DATABASE to "
                "another file or to a PostgreSQL database that both can share."
            ) from None
        self._file = file

    def give_back(self) -> None:
        """Let the next server in."""
        if self._file is not None:
            self._file.close()
            self._file = None


def renew(connection: Connection, owner: str, now: float, *, alone: bool) -> None:
    """Hold the lease for another LEASE_S seconds. alone: no other owner can be alive."""
    until = int(now) + LEASE_S
    if connection.execute(update(owners).where(owners.c.id == owner).values(leased_until=until)).rowcount == 0:
        connection.execute(insert(owners).values(id=owner, leased_until=until))
    gone = owners.c.id != owner
    connection.execute(delete(owners).where(gone if alone else gone & (owners.c.leased_until < int(now))))


def resign(connection: Connection, owner: str) -> None:
    """Give the lease back: what is still open may be closed by others at once."""
    connection.execute(delete(owners).where(owners.c.id == owner))


def close_abandoned(database: Engine, now: float) -> int:
    """Close some turns whose owner holds no lease, with what was recorded last; returns how many."""
    abandoned = (
        select(turns.c.id)
        .where(turns.c.closed.is_(None), turns.c.owner.not_in(select(owners.c.id)))
        .order_by(turns.c.id)
        .limit(_AT_ONCE)
    )
    with database.begin() as connection:
        ids = list(connection.execute(abandoned).scalars())
        if ids:
            books = load(connection, now, (), ids)
            for turn in ids:
                books.close(turn)
            save(connection, books, "")
    return len(ids)
