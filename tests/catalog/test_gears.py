"""The gears of the catalogue: what they promise fits together, and higher gears are dearer and rarer."""

from __future__ import annotations

from itertools import pairwise

from gearshift.catalog import GEARS, gear_of, service_tier_of


def test_the_shares_leave_something_for_gears_without_one() -> None:
    assert all(0 <= gear.share < 1 for gear in GEARS.values())
    assert sum(gear.share for gear in GEARS.values()) <= 0.95
    assert GEARS["standard"].share == 0


def test_higher_gears_take_more_rows_and_cost_more() -> None:
    for lower, higher in pairwise(sorted(GEARS.values(), key=lambda gear: gear.rank)):
        assert lower.lookahead < higher.lookahead
        assert lower.share < higher.share
        assert lower.price < higher.price
        assert lower.queue_wait_s >= higher.queue_wait_s
        assert higher.seats is not None
        assert lower.seats is None or lower.seats > higher.seats


def test_every_gear_is_found_by_the_name_that_it_answers_with() -> None:
    for name, gear in GEARS.items():
        assert gear.name == name
        assert gear_of(service_tier_of(name)) == name
