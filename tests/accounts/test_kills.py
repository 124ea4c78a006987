"""A real process with a real database, killed at any instant, again and again: the books add up, every reservation is
closed, and no turn is charged for more than its client could have received.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from gearshift.accounts.audit import audit
from gearshift.accounts.leases import LEASE_S
from gearshift.accounts.ledger import Ledger
from gearshift.accounts.meter import RECORD_TOKENS
from gearshift.accounts.tables import open_database, turns
from tests.accounts.plans_for_tests import BACKENDS, database_url

LARGEST_WRITE = 90
SEED = os.environ.get("GEARSHIFT_TEST_SEED", "fixed")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lives", [6, pytest.param(60, marks=pytest.mark.long)])
def test_books_after_random_kills(backend: str, lives: int, tmp_path: Path) -> None:
    rng = random.Random(time.time_ns() if SEED == "random" else SEED)
    made: dict[str, int] = {}
    left: dict[str, int] = {}
    with database_url(backend, tmp_path) as url:
        for life in range(lives):
            for what, name, *count in one_life(url, f"{life}-{rng.random()}", rng):
                if what in ("made", "left"):
                    (made if what == "made" else left)[name] = int(count[0])
        database = open_database(url)
        close_books(database)
        assert audit(database, open_turns=False) == []
        check_charges(database, made, left)
        database.dispose()
    assert len(made) >= 20 * lives, "too few turns to prove anything"


def one_life(url: str, seed: str, rng: random.Random) -> list[list[str]]:
    """What a server said between its birth and its death."""
    lines: list[list[str]] = []
    command = [sys.executable, "-m", "tests.accounts.killed_main", url, seed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout
        busy = threading.Event()
        # Some are killed while they start; most when there is much to lose.
        enough = 1 if rng.random() < 0.2 else rng.randrange(500, 3000)

        def read() -> None:
            for line in output:
                lines.append(line.split())
                if len(lines) >= enough:
                    busy.set()
            busy.set()

        reader = threading.Thread(target=read)
        reader.start()
        busy.wait()
        time.sleep(rng.random() * 0.15)
        assert process.poll() is None, "the server ended by itself"
        process.send_signal(signal.SIGKILL)
        reader.join()
    return lines


def close_books(database: Engine) -> None:
    """What the next server does at its start, when the leases of the dead have ended."""
    ledger = Ledger(database, lambda: 4_000_000_000 + LEASE_S)
    ledger.start()
    ledger.close()


def check_charges(database: Engine, made: dict[str, int], left: dict[str, int]) -> None:
    with database.connect() as connection:
        booked = {row.id: row for row in connection.execute(select(turns))}
    assert made.keys() <= booked.keys(), "a turn wrote text without a reservation"
    for name, row in booked.items():
        assert row.output_tokens <= made.get(name, 0), f"{name} is charged for text that was never made"
        # Time aside, text that left is at most RECORD_TOKENS and one write ahead of its record.
        assert row.output_tokens >= left.get(name, 0) - RECORD_TOKENS - LARGEST_WRITE, f"{name} got text for nothing"
        assert row.charge <= row.reserved
