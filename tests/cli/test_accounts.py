"""The commands for accounts and keys, from an empty folder to bars."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gearshift.accounts.opening import open_accounts
from gearshift.cli import app
from tests.accounts.plans_for_tests import demand

PLANS = """
[[price]]
model = "scripted"
input = 1
cached_input = 0.1
output = 4

[[plan.team]]
name = "main"
windows = [{ name = "5h", length = "5h", credits = 10 }]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("GEARSHIFT_PLANS", str(tmp_path / "plans.toml"))
    monkeypatch.delenv("GEARSHIFT_DATABASE", raising=False)
    (tmp_path / "plans.toml").write_text(PLANS)
    return tmp_path


def told(*command: str, fails: bool = False) -> str:
    result = CliRunner().invoke(app, list(command))
    assert result.exit_code == (1 if fails else 0), result.output
    return result.output


def test_from_an_account_to_its_bars(folder: Path) -> None:
    assert open_accounts() is None
    assert "gearshift keys create ann" in told("accounts", "create", "ann", "--plan", "team")
    told("accounts", "create", "bob")
    key = told("keys", "create", "ann").strip()
    assert key.split("-")[1] in told("keys", "list")
    assert "10.00 of 10.00 credits left, full" in told("accounts", "show", "ann")
    accounts = open_accounts()
    assert accounts is not None
    try:
        assert accounts.directory.find(key)
        assert accounts.unpriced(["scripted"]) is None
        assert "plans.toml" in (accounts.unpriced(["scripted", "another"]) or "")
        accounts.ledger.reserve(demand("t", accounts.plans.plans["team"], 2.5)).result()
        shown = told("accounts", "show", "ann")
    finally:
        accounts.close()
    assert "█" * 30 + "░" * 10 in shown and "7.50 of 10.00 credits left, refills " in shown
    assert told("accounts", "list").splitlines()[1].startswith("bob  no limits  since ")
    told("accounts", "disable", "bob")
    assert (
        "disabled" in told("accounts", "list") and told("accounts", "show", "bob").strip() == "bob: no limits, disabled"
    )
    told("keys", "revoke", key.split("-")[1])
    assert told("keys", "list").strip().endswith("revoked")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("accounts create ann --plan gold", "has no plan 'gold'; its plans: team"),
        ("accounts create Ann", "is no account name"),
        ("accounts show bob", "There is no account 'bob'"),
        ("accounts disable bob", "There is no account 'bob'"),
        ("keys create bob", "There is no account 'bob'"),
        ("keys revoke 123", "No key with the prefix '123'"),
    ],
)
def test_what_goes_wrong_is_one_line(folder: Path, command: str, words: str) -> None:
    output = told(*command.split(), fails=True)
    assert words in output
    assert len(output.strip().splitlines()) == 1
