"""Accounts and their keys: made, listed and revoked in the database, and looked up in memory.

A key is `gs-PREFIX-SECRET`. It is shown once; what stays is its prefix, by which it is found, and its SHA-256 digest,
with which it is compared in constant time. A server reads changes of other processes every second.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from gearshift.accounts.tables import accounts, keys, reading

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
REFRESH_S = 1.0
"""How old what a server knows of accounts and keys may be."""


class AccountProblem(Exception):
    """An account or key that cannot be made or found; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account; times in Unix seconds. `plan` is None where it has no tanks and is not metered."""

    name: str
    plan: str | None
    created: int
    disabled: int | None


@dataclass(frozen=True, slots=True)
class Key:
    """What is kept of a key."""

    prefix: str
    digest: bytes
    account: str
    created: int
    revoked: int | None


def create_account(database: Engine, name: str, plan: str | None, now: float) -> None:
    """Raises AccountProblem for a name that is taken or cannot be one."""
    if not _NAME.fullmatch(name) or name == "local" or name.startswith("key-"):
        raise AccountProblem(
            f"{name!r} is no account name: use up to 63 lower-case letters, digits, dots, dashes and underscores, "
            "starting with a letter or digit ('local' and 'key-...' are the server's own)."
        )
    try:
        with database.begin() as connection:
            connection.execute(insert(accounts).values(name=name, plan=plan, created=int(now)))
    except IntegrityError:
        raise AccountProblem(f"There is an account {name!r} already; choose another name.") from None


def disable_account(database: Engine, name: str, now: float) -> None:
    """Refuse the account's keys from now on. Raises AccountProblem."""
    with database.begin() as connection:
        changed = connection.execute(update(accounts).where(accounts.c.name == name).values(disabled=int(now)))
    if changed.rowcount == 0:
        raise _no_account(name)


def list_accounts(database: Engine) -> list[Account]:
    """All accounts by name."""
    with reading(database).connect() as connection:
        found = connection.execute(select(accounts).order_by(accounts.c.name))
        return [Account(row.name, row.plan, row.created, row.disabled) for row in found]


def create_key(database: Engine, account: str, now: float) -> str:
    """A fresh key of an account: the only time that it is seen. Raises AccountProblem."""
    prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    key = f"gs-{prefix}-{secret}"
    with database.begin() as connection:
        if connection.execute(select(accounts.c.name).where(accounts.c.name == account)).first() is None:
            raise _no_account(account)
        connection.execute(
            insert(keys).values(prefix=prefix, digest=_digest(key), account=account, created=int(now)),
        )
    return key


def revoke_key(database: Engine, prefix: str, now: float) -> None:
    """Refuse a key from now on; turns that run go on to their end. Raises AccountProblem."""
    open_key = (keys.c.prefix == prefix) & keys.c.revoked.is_(None)
    with database.begin() as connection:
        changed = connection.execute(update(keys).where(open_key).values(revoked=int(now)))
    if changed.rowcount == 0:
        raise AccountProblem(f"No key with the prefix {prefix!r} is in use; `gearshift keys list` shows them all.")


def list_keys(database: Engine) -> list[Key]:
    """All keys by account and age."""
    with reading(database).connect() as connection:
        found = connection.execute(select(keys).order_by(keys.c.account, keys.c.created, keys.c.prefix))
        return [Key(row.prefix, row.digest, row.account, row.created, row.revoked) for row in found]


@dataclass(frozen=True, slots=True)
class _Known:
    accounts: dict[str, Account]
    keys: dict[str, Key]


class Directory:
    """What a server knows of accounts and keys: all of it, in memory, at most REFRESH_S old."""

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._seen: tuple[int, int, int, int] = self._counts()
        self._known = self._read()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="directory", daemon=True)

    def start(self) -> None:
        """Follow changes that other processes make."""
        self._thread.start()

    def close(self) -> None:
        """Follow no more."""
        self._ended.set()
        self._thread.join()

    @property
    def empty(self) -> bool:
        """Whether there is no account at all."""
        return not self._known.accounts

    @property
    def accounts(self) -> Sequence[Account]:
        """All accounts."""
        return tuple(self._known.accounts.values())

    def plan_of(self, account: str) -> str | None:
        """The name of an account's plan; None where it has none, or is not in the directory."""
        found = self._known.accounts.get(account)
        return found.plan if found else None

    def find(self, key: str) -> Account | None:
        """The account of a key that may be used now."""
        known = self._known
        scheme, _, rest = key.partition("-")
        found = known.keys.get(rest.partition("-")[0]) if scheme == "gs" else None
        # A prefix that is not known is compared as well: the time taken tells nothing about prefixes.
        right = hmac.compare_digest(found.digest if found else bytes(32), _digest(key))
        if found is None or not right or found.revoked is not None:
            return None
        account = known.accounts.get(found.account)
        return account if account is not None and account.disabled is None else None

    def refresh(self) -> None:
        """Read everything again if anything has changed."""
        # Counted first: what changes in between is then read twice, not missed.
        counts = self._counts()
        if counts != self._seen:
            self._seen, self._known = counts, self._read()

    def _counts(self) -> tuple[int, int, int, int]:
        """Every change adds to one of these, and counting is much cheaper than reading."""
        of_accounts = select(func.count(accounts.c.name), func.count(accounts.c.disabled))
        of_keys = select(func.count(keys.c.prefix), func.count(keys.c.revoked))
        with reading(self._database).connect() as connection:
            made, disabled = connection.execute(of_accounts).one()
            keys_made, revoked = connection.execute(of_keys).one()
        return made, disabled, keys_made, revoked

    def _read(self) -> _Known:
        return _Known(
            {one.name: one for one in list_accounts(self._database)},
            {one.prefix: one for one in list_keys(self._database)},
        )

    def _follow(self) -> None:
        while not self._ended.wait(REFRESH_S):
            try:
                self.refresh()
            except SQLAlchemyError as error:
                _log.warning("accounts and keys could not be read again: %s", error)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def _no_account(name: str) -> AccountProblem:
    return AccountProblem(f"There is no account {name!r}; `gearshift accounts list` shows them all.")
