"""Periods hold the moment at which they open, and calendar ones meet without a gap."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.accounts.windows import Calendar, Window

MOMENTS = st.integers(0, 4_000_000_000)
CALENDARS: list[Calendar] = ["day", "week", "month"]


@given(now=MOMENTS, length=st.integers(1, 10_000_000))
def test_a_rolling_period_starts_with_its_first_use(now: int, length: int) -> None:
    assert Window("w", 1, length).period(now + 0.7) == (now, now + length)


@given(now=MOMENTS, every=st.sampled_from(CALENDARS))
def test_calendar_periods_tile_time(now: int, every: Calendar) -> None:
    window = Window("w", 1, every=every)
    starts, ends = window.period(now)
    assert starts <= now < ends
    assert window.period(ends - 1) == (starts, ends)
    assert window.period(ends)[0] == ends
    assert window.minutes(now) == (ends - starts) // 60


def test_calendar_units_by_hand() -> None:
    now = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()

    def dates(every: Calendar) -> list[str]:
        period = Window("w", 1, every=every).period(now)
        return [datetime.fromtimestamp(one, UTC).isoformat()[:16] for one in period]

    assert dates("day") == ["2026-12-31T00:00", "2027-01-01T00:00"]
    assert dates("week") == ["2026-12-28T00:00", "2027-01-04T00:00"]
    assert dates("month") == ["2026-12-01T00:00", "2027-01-01T00:00"]


def test_a_window_is_one_or_the_other() -> None:
    with pytest.raises(ValueError, match="not both"):
        Window("w", 1)
    with pytest.raises(ValueError, match="not both"):
        Window("w", 1, 5, "day")
