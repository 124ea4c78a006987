"""Opens what a server or a command needs of this room: the database, and the ledger, the directory and the meter over
it, started and ended together.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Engine

from gearshift.accounts.books import TankState
from gearshift.accounts.directory import Directory
from gearshift.accounts.leases import AlreadyServed
from gearshift.accounts.ledger import Ledger
from gearshift.accounts.meter import Meter
from gearshift.accounts.places import configured, default_database, named_database, plans_path
from gearshift.accounts.plans import NO_PLANS, BadPlans, Plans, read_plans
from gearshift.accounts.prices import BadPrice
from gearshift.accounts.repeats import Repeats
from gearshift.accounts.store import load
from gearshift.accounts.tables import CannotOpen, open_database, reading, sqlite_url
from gearshift.accounts.tanks import Plan


def database_here() -> Engine:
    """The database that commands work on, made where there is none. Raises CannotOpen."""
    if (url := named_database()) is not None:
        return open_database(url)
    path = default_database()
    try:
        # The digests of keys are nobody else's business.
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CannotOpen(f"The folder {path.parent} cannot be made: {error}. Set GEARSHIFT_DATABASE.") from None
    return open_database(sqlite_url(path))


class CannotServeAccounts(Exception):
    """A server cannot start with the accounts that are configured; the message says why and what to do."""


@dataclass(slots=True)
class OpenAccounts:
    """Accounts of a running server."""

    database: Engine
    directory: Directory
    ledger: Ledger
    meter: Meter
    repeats: Repeats
    plans: Plans

    def unpriced(self, models: Collection[str]) -> str | None:
        """What is wrong when a model has no price while accounts have plans: the server must not start so."""
        if any(account.plan for account in self.directory.accounts):
            try:
                self.plans.prices.require([*models], time.time())
            except BadPrice as error:
                return f"{error} The plans file is {plans_path()}."
        return None

    def close(self) -> None:
        """Commit what is waiting and let go of the database."""
        self.ledger.close()
        self.directory.close()
        self.database.dispose()


def open_accounts() -> OpenAccounts | None:
    """The accounts of this server, with books in order; None where none are configured.

    Raises:
        CannotServeAccounts: the database cannot be used, or another server uses it; or an account has a plan, and
            the plans file is wrong or does not give it.
    """
    try:
        return _open()
    except (CannotOpen, AlreadyServed, BadPlans) as error:
        raise CannotServeAccounts(str(error)) from error


def _open() -> OpenAccounts | None:
    if not configured():
        return None
    database = database_here()
    directory = Directory(database)
    if directory.empty and named_database() is None:
        database.dispose()
        return None
    plans = plans_for(directory)
    ledger = Ledger(database)
    ledger.start()
    directory.start()
    meter = Meter(ledger, plans, directory.plan_of)
    return OpenAccounts(database, directory, ledger, meter, Repeats(database), plans)


def plans_for(directory: Directory) -> Plans:
    """The plans file, if any account needs one. Raises BadPlans."""
    named = {account.plan: account.name for account in directory.accounts if account.plan}
    if not named:
        return read_plans(plans_path()) if plans_path().exists() else NO_PLANS
    plans = read_plans(plans_path())
    for plan, account in named.items():
        if plan not in plans.plans:
            raise BadPlans(
                f"The account {account!r} has the plan {plan!r}, but {plans_path()} gives only "
                f"{', '.join(plans.plans) or 'none'}. Add [[plan.{plan}]] there."
            )
    return plans


def states_of(database: Engine, account: str, plan: Plan, now: float) -> tuple[TankState, ...]:
    """An account's tanks as they stand."""
    with reading(database).connect() as connection:
        return load(connection, now, [account], ()).states(account, plan)
