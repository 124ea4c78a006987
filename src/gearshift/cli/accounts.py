"""`gearshift accounts`: who may use this server, by which plan, and what is left in their tanks."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from gearshift.cli.shown import fail

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from gearshift.accounts.books import TankState, WindowState

app = typer.Typer(
    help="Accounts, kept in GEARSHIFT_DATABASE; their plans are in the file GEARSHIFT_PLANS.", no_args_is_help=True
)

_BAR = 40


@contextmanager
def accounts_database() -> Generator[Engine]:
    """The database of accounts; what goes wrong with it ends the command with one line."""
    from sqlalchemy.exc import SQLAlchemyError

    from gearshift.accounts.directory import AccountProblem
    from gearshift.accounts.opening import database_here
    from gearshift.accounts.plans import BadPlans
    from gearshift.accounts.tables import CannotOpen

    try:
        database = database_here()
        try:
            yield database
        finally:
            database.dispose()
    except (AccountProblem, BadPlans, CannotOpen) as error:
        fail(error)
    except SQLAlchemyError as error:
        fail(f"The accounts database does not answer: {error}")


@app.command("create")
def create(
    name: str,
    plan: Annotated[
        str | None, typer.Option(help="A plan of the plans file; without one the account has no limits.")
    ] = None,
) -> None:
    """Make an account. From the first one on, a server asks everybody for a key."""
    from gearshift.accounts.directory import AccountProblem, create_account
    from gearshift.accounts.places import plans_path
    from gearshift.accounts.plans import read_plans

    with accounts_database() as database:
        if plan is not None and plan not in (known := read_plans(plans_path()).plans):
            raise AccountProblem(f"{plans_path()} has no plan {plan!r}; its plans: {', '.join(known) or 'none'}.")
        create_account(database, name, plan, time.time())
    print(f"The account {name} is there. Give it a key: gearshift keys create {name}")
    print("A running server that was open must be started again; others take the account within a second.")


@app.command("list")
def list_all() -> None:
    """Show all accounts."""
    from gearshift.accounts.directory import list_accounts

    with accounts_database() as database:
        for account in list_accounts(database):
            state = "" if account.disabled is None else f"  disabled {moment(account.disabled)}"
            print(f"{account.name}  {account.plan or 'no limits'}  since {moment(account.created)}{state}")


@app.command("show")
def show(name: str) -> None:
    """Show what is left in an account's tanks, and when they refill."""
    from gearshift.accounts.directory import AccountProblem, list_accounts
    from gearshift.accounts.opening import states_of
    from gearshift.accounts.places import plans_path
    from gearshift.accounts.plans import read_plans

    with accounts_database() as database:
        account = next((one for one in list_accounts(database) if one.name == name), None)
        if account is None:
            raise AccountProblem(f"There is no account {name!r}; `gearshift accounts list` shows them all.")
        print(f"{account.name}: {account.plan or 'no limits'}" + (", disabled" if account.disabled else ""))
        if account.plan is None:
            return
        plan = read_plans(plans_path()).plans.get(account.plan)
        if plan is None:
            raise AccountProblem(f"{plans_path()} has no plan {account.plan!r} any more.")
        for tank in states_of(database, name, plan, time.time()):
            _draw(tank)


@app.command("disable")
def disable(name: str) -> None:
    """Refuse all keys of an account from now on."""
    from gearshift.accounts.directory import disable_account

    with accounts_database() as database:
        disable_account(database, name, time.time())
    print(f"The keys of {name} are refused from now on. Turns that run go on to their end.")


def _draw(tank: TankState) -> None:
    print(f"{tank.name} ({tank.kind})")
    for window in tank.windows:
        filled = round(_BAR * (1 - window.used_percent / 100))
        print(f"  {window.name:>8} {'█' * filled}{'░' * (_BAR - filled)} {_left(window)}")


def _left(window: WindowState) -> str:
    from gearshift.accounts.prices import MICRO

    left = f"{window.balance / MICRO:,.2f} of {window.credits / MICRO:,.2f} credits left"
    if window.ends is None:
        return f"{left}, full"
    return f"{left}, refills {moment(window.ends)}"


def moment(unix_s: int) -> str:
    """A time as commands show it, in the zone of this machine."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(unix_s))
