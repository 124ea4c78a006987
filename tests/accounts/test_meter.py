"""The meter on an event loop: worst cases, records that come first, ends of all kinds, and refusals in plain words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from gearshift.accounts.audit import audit
from gearshift.accounts.ledger import Ledger
from gearshift.accounts.meter import RECORD_TOKENS, Meter
from gearshift.accounts.prices import MICRO
from gearshift.accounts.refusals import BooksUnavailable, TankEmpty
from gearshift.accounts.tables import open_database, sqlite_url, turns
from gearshift.accounts.tanks import Plan, Tank
from gearshift.caller import Usage
from tests.accounts.plans_for_tests import MODEL, hours, main, plan_of, plans_of

NOW = 1_800_000_000
PLAN = plan_of(main(hours(10)), Tank("fast", "separate", (hours(30),), gears=frozenset({"ultrafast"})))

Scene = Callable[[Meter], Awaitable[None]]


def run(database: Engine, scene: Scene, plan: Plan = PLAN) -> None:
    ledger = Ledger(database, lambda: NOW)
    ledger.start()

    async def play() -> None:
        await scene(Meter(ledger, plans_of(plan), {"ann": plan.name, "lost": "gone"}.get, lambda: NOW))

    try:
        asyncio.run(play())
    finally:
        ledger.close()


def used(output: int, prompt: int = 1000, cached: int = 0) -> Usage:
    return Usage(prompt, cached, output, "finished")


def charge_of(database: Engine, turn: str) -> tuple[int, int, int | None]:
    with database.connect() as connection:
        row = connection.execute(select(turns).where(turns.c.id == turn)).one()
    return row.charge, row.output_tokens, row.closed


def test_what_is_reserved_and_what_is_charged(database: Engine) -> None:
    async def scene(meter: Meter) -> None:
        booking = await meter.admit("t", "ann", MODEL, "standard", 1000, 500)
        assert booking.granted.turn.reserved == 3 * MICRO
        (main_tank, _) = booking.granted.states
        assert main_tank.windows[0].balance == 7 * MICRO
        assert booking.granted.before()[0].windows[0].balance == 10 * MICRO
        booking.close(used(10, cached=500))
        booking.close(used(499))

    run(database, scene)
    assert charge_of(database, "t") == (590_000, 10, NOW)
    assert audit(database, open_turns=False) == []


def test_progress_is_committed_before_it_returns_where_a_record_is_due(database: Engine) -> None:
    async def scene(meter: Meter) -> None:
        booking = await meter.admit("t", "ann", MODEL, "standard", 1000, 500)
        await booking.progress(used(0))
        assert charge_of(database, "t") == (MICRO, 0, None)
        await booking.progress(used(RECORD_TOKENS))
        assert charge_of(database, "t")[1] == RECORD_TOKENS
        booking.close(used(RECORD_TOKENS))

    run(database, scene)


def test_text_that_nothing_follows_is_recorded_by_itself(database: Engine) -> None:
    async def scene(meter: Meter) -> None:
        booking = await meter.admit("t", "ann", MODEL, "standard", 1000, 500)
        await booking.progress(used(0))
        await booking.progress(used(1))
        while charge_of(database, "t")[1] != 1:
            await asyncio.sleep(0.005)

    run(database, scene)


def test_a_turn_that_is_cancelled_while_it_is_admitted_leaves_nothing_open(database: Engine) -> None:
    async def scene(meter: Meter) -> None:
        tasks = [asyncio.create_task(meter.admit(str(turn), "ann", MODEL, "standard", 1, 1)) for turn in range(100)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        booking = await meter.admit("next", "ann", MODEL, "standard", 0, 2500)
        booking.close(used(0, 0))

    run(database, scene)
    assert audit(database, open_turns=False) == []


def test_an_empty_tank_is_named_with_its_time_and_a_way_out(database: Engine) -> None:
    async def scene(meter: Meter) -> None:
        (await meter.admit("t", "ann", MODEL, "standard", 9000, 0)).close(used(0, 9000))
        with pytest.raises(TankEmpty) as caught:
            await meter.admit("u", "ann", MODEL, "standard", 2000, 0)
        error = caught.value
        assert (error.tank, error.window, error.resets_at) == ("main", "5h", NOW + 5 * 3600)
        assert error.retry_after_s == 5 * 3600
        for words in (
            "1 of 10 credits",
            "may need 2 credits",
            "2027-01-15 13:00:00 UTC",
            "'ultrafast' from the tank 'fast'",
        ):
            assert words in str(error)
        with pytest.raises(TankEmpty, match="It never holds that many: lower the output limit") as caught:
            await meter.admit("v", "ann", MODEL, "ultrafast", 0, 10_000)
        assert caught.value.resets_at is None

    run(database, scene)


def test_a_gear_without_a_tank(database: Engine) -> None:
    plan = plan_of(Tank("main", "main", (hours(10),), gears=frozenset({"standard"})))

    async def scene(meter: Meter) -> None:
        with pytest.raises(TankEmpty, match=r"No tank .* 'priority'.*served now in the gear 'standard'"):
            await meter.admit("t", "ann", MODEL, "priority", 1, 1)

    run(database, scene, plan)


def test_who_is_metered_and_what_is_missing(database: Engine) -> None:
    async def scene(meter: Meter) -> None:
        assert meter.metered("ann") and not meter.metered("bob") and not meter.metered("local")
        with pytest.raises(BooksUnavailable, match="'lost' has the plan 'gone'"):
            await meter.admit("t", "lost", MODEL, "standard", 1, 1)
        with pytest.raises(BooksUnavailable, match="'unpriced' has no price"):
            await meter.admit("t", "ann", "unpriced", "standard", 1, 1)

    run(database, scene)


def test_after_the_end_of_the_ledger(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path / "accounts.db"))
    ledger = Ledger(database, lambda: NOW)
    ledger.start()
    meter = Meter(ledger, plans_of(PLAN), {"ann": PLAN.name}.get, lambda: NOW)

    async def play() -> None:
        booking = await meter.admit("t", "ann", MODEL, "standard", 1, 1)
        await asyncio.to_thread(ledger.close)
        await booking.progress(used(1))
        booking.close(used(1))
        with pytest.raises(BooksUnavailable, match="going down"):
            await meter.admit("u", "ann", MODEL, "standard", 1, 1)

    asyncio.run(play())
    database.dispose()
