from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.engine.local.drafting.acceptance import Acceptance


def test_longer_matches_are_trusted_more_at_first() -> None:
    acceptance = Acceptance()
    odds = [acceptance.odds(acceptance.bucket(match)) for match in (0, 1, 2, 4, 8, 16, 32)]
    assert odds == sorted(set(odds))


def test_drafts_that_are_kept_get_longer() -> None:
    acceptance = Acceptance()
    before = acceptance.length(2, 15)
    for _ in range(10):
        acceptance.learn(2, 4, 4)
    assert before < acceptance.length(2, 15) == 15


@pytest.mark.parametrize("bucket", range(7))
def test_hopeless_drafts_stop_but_for_one_in_a_while(bucket: int) -> None:
    acceptance = Acceptance()
    for _ in range(40):
        acceptance.learn(bucket, 4, 0)
    lengths = [acceptance.length(bucket, 15) for _ in range(100)]
    assert 0 < sum(lengths) <= 10


@pytest.mark.parametrize("bucket", range(7))
def test_hope_comes_back_with_drafts_that_are_kept(bucket: int) -> None:
    acceptance = Acceptance()
    for _ in range(100):
        acceptance.learn(bucket, 1, 0)
    for _ in range(6):
        acceptance.learn(bucket, 1, 1)
    assert acceptance.length(bucket, 15) > 1


def test_one_kind_of_match_says_nothing_of_another() -> None:
    acceptance = Acceptance()
    for _ in range(40):
        acceptance.learn(1, 4, 0)
    assert acceptance.odds(4) == Acceptance().odds(4)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 15), st.integers(0, 15)), max_size=50), st.integers(0, 20))
def test_odds_are_odds_and_lengths_within_bounds(learned: list[tuple[int, int, int]], most: int) -> None:
    acceptance = Acceptance()
    for bucket, used, kept in learned:
        acceptance.learn(bucket, used, min(used, kept))
        assert 0.0 <= acceptance.odds(bucket) < 1.0
        assert 0 <= acceptance.length(bucket, most) <= most
