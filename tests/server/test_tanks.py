"""Metered turns over HTTP: what they are charged however they end, what their answers tell of tanks, and refusals."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, select

from gearshift.accounts.audit import audit
from gearshift.accounts.directory import Directory, create_account, create_key, revoke_key
from gearshift.accounts.ledger import Ledger
from gearshift.accounts.meter import Meter
from gearshift.accounts.prices import MICRO
from gearshift.accounts.repeats import Repeats
from gearshift.accounts.tables import open_database, sqlite_url, turns
from gearshift.accounts.tanks import Plan, Tank
from tests.accounts.plans_for_tests import hours, main, plan_of, plans_of
from tests.scripted import ScriptedEngine
from tests.server.running import Running, running

# A prompt of four words and an answer of nine tokens with its end: 0.004 + 0.04 credits, two words being cached.
PROMPT = "a b c d"
COST = 4 * 10 + 2 + 0.2
PLAN = plan_of(
    main(hours(1), hours(3, 168)),
    Tank("fast", "separate", (hours(50),), gears=frozenset({"ultrafast"})),
    Tank("spare", "overflow", (hours(0.05),)),
)


@dataclass
class Metered:
    """A running server with one account, its key and its books."""

    server: Running
    client: httpx.Client
    database: Engine
    directory: Directory
    key: str

    def charges(self) -> list[tuple[str, str, float]]:
        """Tank, gear and thousandths of a credit of every turn, oldest first, once all are closed."""
        while True:
            with self.database.connect() as connection:
                rows = connection.execute(select(turns).order_by(turns.c.opened, turns.c.id)).all()
            if all(row.closed is not None for row in rows):
                return [(row.tank, row.gear, row.charge * 1000 / MICRO) for row in rows]
            time.sleep(0.01)

    def ask(self, prompt: str = PROMPT, **fields: object) -> httpx.Response:
        return self.client.post("/v1/completions", json={"model": "scripted", "prompt": prompt, **fields})


@contextmanager
def metered(folder: Path, plan: Plan = PLAN, **options: float) -> Generator[Metered]:
    database = open_database(sqlite_url(folder / "accounts.db"))
    create_account(database, "ann", plan.name, time.time())
    key = create_key(database, "ann", time.time())
    ledger, directory = Ledger(database), Directory(database)
    ledger.start()
    meter = Meter(ledger, plans_of(plan), directory.plan_of)
    engine = ScriptedEngine(pause_s=options.get("pause_s", 0.0))
    try:
        with (
            running(engine, directory=directory, meter=meter, repeats=Repeats(database)) as server,
            httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=60) as client,
        ):
            yield Metered(server, client, database, directory, key)
    finally:
        ledger.close()
    assert audit(database, open_turns=False) == []
    database.dispose()


def test_a_turn_is_charged_exactly_and_its_answer_tells_of_tanks(tmp_path: Path) -> None:
    with metered(tmp_path) as it:
        first = it.ask(max_tokens=20)
        assert first.status_code == 200
        assert it.charges() == [("main", "standard", pytest.approx(COST))]
        headers = it.ask(max_tokens=20, stream=True).headers
        used = 100 * COST / 1000
        assert float(headers["x-codex-primary-used-percent"]) == pytest.approx(used, abs=0.01)
        assert headers["x-codex-primary-window-minutes"] == "300"
        assert float(headers["x-codex-secondary-used-percent"]) == pytest.approx(used / 3, abs=0.01)
        assert time.time() < int(headers["x-codex-primary-reset-at"]) <= time.time() + 5 * 3600
        assert headers["x-codex-limit-name"] == headers["x-gearshift-tank"] == "main"
        assert float(headers["x-ratelimit-remaining-credits"]) == pytest.approx(1 - COST / 1000)
        assert headers["x-gearshift-tank-fast"] == "5h; used-percent=0.00"


def test_a_stream_that_is_left_is_charged_for_what_was_produced(tmp_path: Path) -> None:
    with metered(tmp_path, pause_s=0.02) as it:
        body = {"model": "scripted", "prompt": "forever", "max_tokens": 60, "stream": True}
        with it.client.stream("POST", "/v1/completions", json=body) as response:
            next(response.iter_text())
        it.server.wait_settled(1)
        ((_, _, usage),) = it.server.settled
        assert usage.ending == "cancelled" and 0 < usage.completion_tokens < 60
        assert it.charges() == [("main", "standard", pytest.approx(0.1 + 4 * usage.completion_tokens))]


@pytest.mark.parametrize("prompt", ["break-early", "late-failure", "overload", "a " * 65])
def test_a_turn_that_never_starts_costs_nothing(tmp_path: Path, prompt: str) -> None:
    with metered(tmp_path) as it:
        assert it.ask(prompt).status_code >= 400
        assert it.charges() == [("main", "standard", 0)]


def test_a_turn_that_breaks_costs_what_came_of_it(tmp_path: Path) -> None:
    with metered(tmp_path) as it:
        assert it.ask("break-late x").status_code == 500
        assert it.charges() == [("main", "standard", pytest.approx(0.2 + 3 * 4))]


def test_an_empty_tank_answers_in_the_words_of_codex(tmp_path: Path) -> None:
    with metered(tmp_path, plan_of(main(hours(0.05)), PLAN.tanks[1])) as it:
        it.ask(max_tokens=9)
        refused = it.ask(max_tokens=9)
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert error["type"] == error["code"] == "usage_limit_reached"
        assert time.time() < error["resets_at"] <= time.time() + 5 * 3600
        assert "The tank 'main' has" in error["message"] and "'ultrafast' from the tank 'fast'" in error["message"]
        assert refused.headers["x-codex-active-limit"] == "codex_main"
        assert refused.headers["x-codex-main-limit-name"] == "main"
        assert refused.headers["x-should-retry"] == "false" and "retry-after" not in refused.headers
        assert it.ask(max_tokens=9, service_tier="ultrafast").status_code == 200
        assert sorted(tank for tank, _, _ in it.charges()) == ["fast", "main"]


def test_a_turn_that_falls_over_to_a_reserve_says_so(tmp_path: Path) -> None:
    with metered(tmp_path, plan_of(main(hours(0.05)), Tank("spare", "overflow", (hours(0.05),)))) as it:
        assert it.ask(max_tokens=9).headers["x-gearshift-tank"] == "main"
        assert it.ask(max_tokens=9).headers["x-gearshift-tank"] == "spare; fell-over=true"
        assert sorted(tank for tank, _, _ in it.charges()) == ["main", "spare"]


def test_several_prompts_are_several_turns(tmp_path: Path) -> None:
    with metered(tmp_path) as it:
        body = {"model": "scripted", "prompt": [PROMPT, PROMPT], "max_tokens": 10, "n": 2}
        assert it.client.post("/v1/completions", json=body).status_code == 200
        assert [charge for _, _, charge in it.charges()] == [pytest.approx(2.2 + 2 * 40)] * 2


def test_a_key_that_is_revoked_ends_no_stream(tmp_path: Path) -> None:
    with metered(tmp_path, pause_s=0.02) as it:
        body = {"model": "scripted", "prompt": PROMPT, "max_tokens": 20, "stream": True}
        with it.client.stream("POST", "/v1/completions", json=body) as response:
            chunks = response.iter_text()
            next(chunks)
            revoke_key(it.database, it.key.split("-")[1], time.time())
            it.directory.refresh()
            assert "[DONE]" in "".join(chunks)
        assert it.ask().status_code == 401
        assert it.charges() == [("main", "standard", pytest.approx(COST))]
