"""What booking a turn costs: `python -m benchmarks.accounts`.

A database with 10,000 accounts, each with two windows that are open already. First one turn after another, admission
and settlement waited for (the median counts); then many turns at once, admissions per second with group commit; then
every entry is counted and the books are audited. Samples go to a JSON file under `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

from sqlalchemy import Engine, func, select

from gearshift.accounts.audit import audit
from gearshift.accounts.books import Demand, Granted
from gearshift.accounts.ledger import Answer, Ledger, Progress
from gearshift.accounts.prices import MICRO, Price, Tokens
from gearshift.accounts.tables import entries, open_database, sqlite_url
from gearshift.accounts.tanks import Plan, Tank
from gearshift.accounts.windows import Window

RESULTS = Path(__file__).parents[1] / "results"
PLAN = Plan("bench", (Tank("main", "main", (Window("5h", 10**6 * MICRO, 18000), Window("7d", 10**7 * MICRO, 604800))),))
PRICE = Price("model", date(1970, 1, 1), Decimal("1"), Decimal("0.1"), Decimal("4"))
WORST, USED = Tokens(2000, 0, 1000), Tokens(2000, 1500, 120)
WINDOWS = 2


@dataclass(frozen=True)
class Figures:
    """Milliseconds of one turn's admission and settlement, and admissions per second in company."""

    pairs_ms: list[float]
    admissions_per_s: list[float]


def demand(turn: str, account: int) -> Demand:
    amount = PRICE.charge(WORST, "standard")
    return Demand(turn, f"account-{account}", PLAN, "model", "standard", {"standard": amount})


def over(turn: str) -> Progress:
    return Progress(turn, "standard", PRICE.charge(USED, "standard"), USED, last=True)


def open_windows(ledger: Ledger, accounts: int) -> None:
    """Every account's first turn: its windows are open afterwards."""
    waiting: list[Future[Answer]] = []
    for account in range(accounts):
        waiting.append(ledger.reserve(demand(f"first-{account}", account)))
        waiting.append(ledger.record(over(f"first-{account}")))
    for done in waiting:
        done.result()


def alone(ledger: Ledger, accounts: int, turns: int, rng: random.Random) -> list[float]:
    """Milliseconds of admission plus settlement, each waited for."""
    took_ms: list[float] = []
    for turn in range(turns):
        asked = demand(f"alone-{turn}", rng.randrange(accounts))
        began = time.perf_counter()
        assert isinstance(ledger.reserve(asked).result(), Granted)
        ledger.record(over(asked.turn)).result()
        took_ms.append(1000 * (time.perf_counter() - began))
    return took_ms


def together(ledger: Ledger, accounts: int, turns: int, rounds: int, rng: random.Random) -> list[float]:
    """Admissions per second of `turns` turns that arrive at once, all admitted before any is settled."""
    rates: list[float] = []
    for number in range(rounds):
        asked = [demand(f"together-{number}-{turn}", rng.randrange(accounts)) for turn in range(turns)]
        began = time.perf_counter()
        waiting = [ledger.reserve(one) for one in asked]
        assert all(isinstance(done.result(), Granted) for done in waiting)
        rates.append(turns / (time.perf_counter() - began))
        for done in [ledger.record(over(one.turn)) for one in asked]:
            done.result()
    return rates


def measured(database: Engine, accounts: int, turns: int, rounds: int) -> Figures:
    """The figures on one database, with its books checked afterwards."""
    rng = random.Random(5)
    ledger = Ledger(database)
    ledger.start()
    try:
        open_windows(ledger, accounts)
        pairs_ms = alone(ledger, accounts, turns, rng)
        rates = together(ledger, accounts, turns, rounds, rng)
    finally:
        ledger.close()
    booked = accounts + turns + rounds * turns
    with database.connect() as connection:
        lines = connection.execute(select(func.count()).select_from(entries)).scalar_one()
    expected = WINDOWS * (accounts + 2 * booked)
    if (wrong := audit(database, open_turns=False)) or lines != expected:
        raise SystemExit(f"the books do not add up: {lines} entries of {expected}; {wrong[:5]}")
    return Figures(pairs_ms, rates)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.accounts", description=__doc__)
    parser.add_argument("--database", help="address of an empty database; by default a fresh SQLite file")
    parser.add_argument("--accounts", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = asked.database or sqlite_url(Path(folder) / "accounts.db")
        database = open_database(url)
        figures = measured(database, asked.accounts, asked.turns, asked.rounds)
        backend = database.dialect.name
        database.dispose()
    quartiles = statistics.quantiles(figures.pairs_ms, n=4)
    print(f"| {backend}, {asked.accounts:,} accounts | |\n| --- | --- |")
    print(f"| admission and settlement, one turn alone: median ms | {quartiles[1]:.2f} |")
    print(f"| quartiles, best | {quartiles[0]:.2f} to {quartiles[2]:.2f}, {min(figures.pairs_ms):.2f} |")
    rates = figures.admissions_per_s
    median, best = statistics.median(rates), max(rates)
    print(f"| admissions a second, {asked.turns:,} at once: median, best | {median:,.0f}, {best:,.0f} |")
    print("| entries lost, sums wrong | 0, 0 |")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"accounts-{backend}-{int(time.time())}.json"
    path.write_text(json.dumps({"asked": vars(asked) | {"database": backend}, **vars(figures)}))
    print(f"\nsamples: {path}")


if __name__ == "__main__":
    main()
