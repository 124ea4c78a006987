"""Plans, databases and demands that the tests of this room share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url

from gearshift.accounts.books import Demand
from gearshift.accounts.plans import Plans
from gearshift.accounts.prices import MICRO, Price, PriceList
from gearshift.accounts.tables import open_database, sqlite_url
from gearshift.accounts.tanks import Plan, Tank
from gearshift.accounts.windows import Window
from gearshift.catalog import GearName

MODEL = "scripted"
PRICE = Price(MODEL, date(1970, 1, 1), Decimal("1"), Decimal("0.1"), Decimal("4"))
PRICES = PriceList([PRICE])
HOUR = 3600
DAY = 24 * HOUR


def hours(credits: float, hours: int = 5) -> Window:
    """A rolling window of so many credits."""
    return Window(f"{hours}h", int(credits * MICRO), hours * HOUR)


def plan_of(*tanks: Tank) -> Plan:
    return Plan("test", tanks)


def main(*windows: Window) -> Tank:
    return Tank("main", "main", windows)


def plans_of(plan: Plan) -> Plans:
    return Plans(PRICES, {plan.name: plan})


def demand(turn: str, plan: Plan, credits: float, *, account: str = "ann", gear: GearName = "standard") -> Demand:
    """A turn that may cost so many credits, in whatever gear."""
    amount = int(credits * MICRO)
    return Demand(turn, account, plan, MODEL, gear, {"standard": amount, "priority": amount, "ultrafast": amount})


BACKENDS = ("sqlite", "postgresql") if os.environ.get("GEARSHIFT_TEST_POSTGRES") else ("sqlite",)
"""PostgreSQL is tested where GEARSHIFT_TEST_POSTGRES names a server (a URL of a database that may be written)."""


@contextmanager
def database_url(backend: str, folder: Path) -> Generator[str]:
    """A fresh database: a file, or a schema of its own on the PostgreSQL server."""
    if backend == "sqlite":
        yield sqlite_url(folder / "accounts.db")
        return
    given = make_url(os.environ["GEARSHIFT_TEST_POSTGRES"]).set(drivername="postgresql+psycopg")
    schema = f"test_{secrets.token_hex(6)}"
    server = create_engine(given)
    with server.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    try:
        own = given.update_query_dict({"options": f"-csearch_path={schema}"})
        yield own.render_as_string(hide_password=False)
    finally:
        with server.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        server.dispose()


@contextmanager
def database_of(backend: str, folder: Path) -> Generator[Engine]:
    """The same, opened."""
    with database_url(backend, folder) as url:
        database = open_database(url)
        try:
            yield database
        finally:
            database.dispose()
