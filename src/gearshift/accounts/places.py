"""Where accounts lie: the address of the database and the path of the plans file, from the environment."""

from __future__ import annotations

import os
from pathlib import Path


def named_database() -> str | None:
    """GEARSHIFT_DATABASE: an address, or None for the default file."""
    return os.environ.get("GEARSHIFT_DATABASE") or None


def default_database() -> Path:
    """The default file: `gearshift/accounts.db` in XDG_DATA_HOME or ~/.local/share."""
    return _folder("XDG_DATA_HOME", ".local/share") / "accounts.db"


def plans_path() -> Path:
    """GEARSHIFT_PLANS, else `gearshift/plans.toml` in XDG_CONFIG_HOME or ~/.config."""
    named = os.environ.get("GEARSHIFT_PLANS")
    return Path(named) if named else _folder("XDG_CONFIG_HOME", ".config") / "plans.toml"


def configured() -> bool:
    """Whether there may be accounts at all: an open server need not even look for a database."""
    return named_database() is not None or default_database().exists()


def _folder(variable: str, below_home: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / below_home) / "gearshift"
