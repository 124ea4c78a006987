"""`gearshift keys`: keys of accounts. A key is shown when it is made, and never again."""

from __future__ import annotations

import time

import typer

from gearshift.cli.accounts import accounts_database, moment

app = typer.Typer(help="Keys of accounts; only their hashes are kept.", no_args_is_help=True)


@app.command("create")
def create(account: str) -> None:
    """Make a key of an account and show it, this once."""
    from gearshift.accounts.directory import create_key

    with accounts_database() as database:
        print(create_key(database, account, time.time()))


@app.command("list")
def list_all() -> None:
    """Show the prefixes of all keys, and whose they are."""
    from gearshift.accounts.directory import list_keys

    with accounts_database() as database:
        for key in list_keys(database):
            print(
                f"{key.prefix}  {key.account}  since {moment(key.created)}"
                + ("" if key.revoked is None else "  revoked")
            )


@app.command("revoke")
def revoke(prefix: str) -> None:
    """Refuse a key from now on. PREFIX is what follows `gs-`, as `gearshift keys list` shows it."""
    from gearshift.accounts.directory import revoke_key

    with accounts_database() as database:
        revoke_key(database, prefix, time.time())
    print(f"The key {prefix} is refused from now on; a running server knows within a second.")
