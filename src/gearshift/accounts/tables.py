"""The tables of accounts and books, and how a database of them is opened: one set of statements for SQLite and
PostgreSQL.

What survives. SQLite runs in WAL mode with `synchronous=NORMAL`: a committed entry survives a kill of the process at
any instant; a power loss may take the last commits with it, in order, so that the books stay consistent and charges
can only be missing. PostgreSQL with its default `synchronous_commit=on` keeps every commit through both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    create_engine,
    event,
)
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

LOCKED_S = 5.0
"""How long one attempt waits for another process that holds the database."""

metadata = MetaData()
_Number = BigInteger().with_variant(Integer, "sqlite")

accounts = Table(
    "accounts",
    metadata,
    Column("name", String(64), primary_key=True),
    # Null: the account has no tanks and is not metered.
    Column("plan", String(64)),
    Column("created", BigInteger, nullable=False),
    Column("disabled", BigInteger),
)
keys = Table(
    "api_keys",
    metadata,
    Column("prefix", String(32), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("account", String(64), ForeignKey("accounts.name"), nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("revoked", BigInteger),
)
periods = Table(
    "periods",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("account", String(64), nullable=False),
    Column("tank", String(64), nullable=False),
    Column("span", String(32), nullable=False),
    Column("number", Integer, nullable=False),
    # Whether it is the newest of its window.
    Column("newest", Boolean, nullable=False),
    Column("starts", BigInteger, nullable=False),
    Column("ends", BigInteger, nullable=False),
    Column("granted", BigInteger, nullable=False),
    # Always the sum of the period's entries.
    Column("balance", BigInteger, nullable=False),
    UniqueConstraint("account", "tank", "span", "number"),
    Index("newest_periods", "account", "newest"),
)
entries = Table(
    "entries",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("period", _Number, ForeignKey("periods.id"), nullable=False),
    Column("turn", String(64)),
    Column("amount", BigInteger, nullable=False),
    Index("entries_of_a_turn", "turn"),
)
turns = Table(
    "turns",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("tank", String(64), nullable=False),
    Column("model", String(256), nullable=False),
    Column("gear", String(16), nullable=False),
    Column("owner", String(32), nullable=False),
    Column("opened", BigInteger, nullable=False),
    # Null while the reservation is open; set once.
    Column("closed", BigInteger),
    Column("reserved", BigInteger, nullable=False),
    Column("charge", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Index("turns_of_an_account", "account", "opened"),
)
Index("open_turns", turns.c.owner, sqlite_where=turns.c.closed.is_(None), postgresql_where=turns.c.closed.is_(None))
answers = Table(
    "answers",
    metadata,
    Column("account", String(64), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("created", BigInteger, nullable=False),
    # Null while the answer is not finished.
    Column("content_type", LargeBinary),
    Column("body", LargeBinary),
    Index("answers_by_age", "created"),
)
owners = Table(
    "owners",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("leased_until", BigInteger, nullable=False),
)


class CannotOpen(Exception):
    """The database cannot be used; the message says which, why and what to do."""


def sqlite_url(path: Path) -> str:
    """The address of a SQLite file."""
    return f"sqlite:///{path}"


def open_database(url: str) -> Engine:
    """The database with its tables. Raises CannotOpen."""
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            engine = create_engine(parsed, connect_args={"timeout": LOCKED_S})
            event.listen(engine, "connect", _sqlite_connect)
            event.listen(engine, "begin", _sqlite_begin)
        else:
            engine = create_engine(parsed)
        metadata.create_all(engine)
    except (ArgumentError, SQLAlchemyError, ImportError) as error:
        shown = url.rpartition("@")[2]
        raise CannotOpen(
            f"The accounts database {shown} cannot be opened ({error}). Give GEARSHIFT_DATABASE as sqlite:///PATH or "
            "postgresql://USER@HOST/NAME; PostgreSQL needs the package's extra `postgres`."
        ) from error
    return engine


def reading(engine: Engine) -> Engine:
    """The same database for transactions that only read: they wait for no writer."""
    return engine.execution_options(reads_only=True)


def _sqlite_connect(connection: Any, record: Any) -> None:
    # Transactions are begun by us: the driver would begin them too late to exclude another writer.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _sqlite_begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
