"""A database per test, on every backend that is there."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.accounts.plans_for_tests import BACKENDS, database_of


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Engine]:
    with database_of(request.param, tmp_path) as opened:
        yield opened
