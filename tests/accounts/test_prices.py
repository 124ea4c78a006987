"""Charges are exact and rounded up once; the price of a day is the one in force."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.accounts.prices import MICRO, BadPrice, Price, PriceList, Tokens
from gearshift.catalog import GEARS, GearName
from tests.accounts.plans_for_tests import MODEL, PRICE

GEAR_NAMES: list[GearName] = list(GEARS)


def test_a_charge_by_hand() -> None:
    # 600 fresh at 1, 400 cached at 0.1 and 50 out at 4 credits per 1,000, times 2.5.
    assert PRICE.charge(Tokens(1000, 400, 50), "priority") == 2.5 * (0.6 + 0.04 + 0.2) * MICRO


def test_a_fraction_is_rounded_up() -> None:
    tiny = Price(MODEL, date(2026, 1, 1), Decimal("0.0001"), Decimal("0"), Decimal("0.0001"))
    assert tiny.charge(Tokens(1), "standard") == 1
    assert tiny.charge(Tokens(25), "standard") == 3
    assert tiny.charge(Tokens(25, 25), "ultrafast") == 0


@given(
    prompt=st.integers(0, 10**6),
    cached=st.integers(0, 10**6),
    output=st.integers(0, 10**5),
    more=st.integers(0, 10**5),
    gear=st.sampled_from(GEAR_NAMES),
)
def test_what_was_reserved_covers_whatever_is_used(
    prompt: int, cached: int, output: int, more: int, gear: GearName
) -> None:
    used = Tokens(prompt, min(cached, prompt), output)
    assert PRICE.charge(used, gear) <= PRICE.charge(Tokens(prompt, 0, output + more), gear)


def test_a_price_changes_on_its_day() -> None:
    dear = Price(MODEL, date(2026, 12, 2), Decimal("9"), Decimal("9"), Decimal("9"))
    prices = PriceList([dear, PRICE])
    midnight = datetime(2026, 12, 2, tzinfo=UTC).timestamp()
    assert prices.at(MODEL, midnight - 1) is PRICE
    assert prices.at(MODEL, midnight) is dear


def test_missing_doubled_and_impossible_prices_are_refused() -> None:
    with pytest.raises(BadPrice, match=r"'other' has no price on 1970-01-02.*\[\[price\]\]"):
        PriceList([PRICE]).require([MODEL, "other"], 86400)
    with pytest.raises(BadPrice, match="two prices from 1970-01-01"):
        PriceList([PRICE, PRICE])
    with pytest.raises(BadPrice, match="costs more than input"):
        Price(MODEL, date(2026, 1, 1), Decimal("1"), Decimal("2"), Decimal("1"))
    with pytest.raises(BadPrice, match="must be 0 to"):
        Price(MODEL, date(2026, 1, 1), Decimal("-1"), Decimal("-1"), Decimal("1"))
