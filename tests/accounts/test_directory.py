"""Accounts and keys: what is kept, who is let in, and how soon a change is known."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, select

from gearshift.accounts import KeyRing, Unauthorized
from gearshift.accounts.directory import (
    AccountProblem,
    Directory,
    create_account,
    create_key,
    disable_account,
    list_accounts,
    list_keys,
    revoke_key,
)
from gearshift.accounts.tables import keys
from gearshift.caller import LOCAL, Caller

NOW = 1_800_000_000


@contextmanager
def following(database: Engine) -> Generator[Directory]:
    directory = Directory(database)
    directory.start()
    try:
        yield directory
    finally:
        directory.close()


def test_a_key_opens_its_account_and_no_other_does(database: Engine) -> None:
    create_account(database, "ann", "team", NOW)
    create_account(database, "bob", None, NOW)
    key, other = create_key(database, "ann", NOW), create_key(database, "bob", NOW)
    ring = KeyRing(["from-environment"], Directory(database))
    assert ring.caller(key) == Caller("ann", "ann")
    assert ring.caller(other) == Caller("bob", "bob")
    assert ring.caller("from-environment").account.startswith("key-")
    prefix = key.split("-")[1]
    for wrong in (
        None,
        "",
        "gs",
        "gs-",
        f"gs-{prefix}",
        f"gs-{prefix}-",
        key[:-1],
        f"{key}a",
        f"x{key}",
        "\udcff",
        key[3:],
    ):
        with pytest.raises(Unauthorized):
            ring.caller(wrong)


def test_a_key_itself_is_kept_nowhere(database: Engine) -> None:
    create_account(database, "ann", None, NOW)
    key = create_key(database, "ann", NOW)
    secret = key.split("-", 2)[2]
    with database.connect() as connection:
        row = connection.execute(select(keys)).one()
    assert secret not in repr(tuple(row)) and secret.encode() not in row.digest
    assert len(secret) >= 32
    assert create_key(database, "ann", NOW) != key


def test_without_accounts_and_keys_a_server_is_open(database: Engine) -> None:
    directory = Directory(database)
    ring = KeyRing((), directory)
    assert ring.open and ring.caller(None) == LOCAL
    create_account(database, "ann", None, NOW)
    directory.refresh()
    assert not ring.open
    with pytest.raises(Unauthorized):
        ring.caller(None)


def test_revoked_keys_and_disabled_accounts_are_refused_soon(database: Engine) -> None:
    create_account(database, "ann", None, NOW)
    first, second = create_key(database, "ann", NOW), create_key(database, "ann", NOW)
    with following(database) as directory:
        assert directory.find(first) and directory.find(second)
        revoke_key(database, first.split("-")[1], NOW)
        # The test's own timeout is the limit.
        while directory.find(first):
            time.sleep(0.02)
        assert directory.find(second)
        disable_account(database, "ann", NOW + 5)
        while directory.find(second):
            time.sleep(0.02)
    assert [(key.account, key.revoked is None) for key in list_keys(database)].count(("ann", True)) == 1
    assert [(one.name, one.disabled) for one in list_accounts(database)] == [("ann", NOW + 5)]


def test_what_cannot_be_made_or_found_is_said(database: Engine) -> None:
    create_account(database, "ann", None, NOW)
    for name in ("ann", "Ann", "", "-a", "local", "key-abc", "a" * 64, "a b"):
        with pytest.raises(AccountProblem, match=r"already|is no account name"):
            create_account(database, name, None, NOW)
    for attempt in (
        lambda: create_key(database, "bob", NOW),
        lambda: disable_account(database, "bob", NOW),
        lambda: revoke_key(database, "123", NOW),
    ):
        with pytest.raises(AccountProblem, match="list"):
            attempt()
