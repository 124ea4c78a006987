from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from gearshift.engine.local.drafting.copying import MOST_APART, Copying
from gearshift.engine.local.drafting.places import Places

SOURCE = Places([*range(100, 120), 7, 8, 9, *range(120, 140), 7, 8, 9, *range(140, 160), 7, 8, 9, *range(160, 180)])


def copied(tokens: Iterable[int]) -> Copying:
    """A copy of SOURCE from its beginning that went on with these tokens, and rejoined wherever it could."""
    copying = Copying()
    copying.follow(SOURCE, 0, 1)
    for token in tokens:
        copying.append(token)
        rejoined = copying.rejoined()
        if rejoined is not None and rejoined[1] > 1:
            copying.follow(SOURCE, *rejoined)
    return copying


def test_a_copy_knows_its_place() -> None:
    copying = copied(range(100, 110))
    assert (copying.place, list(copying.left)) == (10, [])
    assert list(copying.draft(SOURCE, copying.place, 4)) == [110, 111, 112, 113]


def test_behind_an_edit_the_copy_rejoins_its_source() -> None:
    copying = copied([*range(100, 120), 17])
    assert copying.rejoined() == (21, 0)  # one other token: taken to stand for one of the source
    copying.append(18)
    assert copying.rejoined() is None
    copying.append(120)
    assert copying.rejoined() == (24, 1)
    copying.append(121)
    assert copying.rejoined() == (25, 2)


def test_an_edit_that_was_seen_is_drafted_at_its_next_place() -> None:
    copying = copied([*range(100, 120), 17, 18, *range(120, 130)])
    assert list(copying.draft(SOURCE, copying.place, 14)) == [*range(130, 140), 17, 18, 140, 141]


def test_an_edit_that_was_not_made_again_is_no_longer_drafted() -> None:
    copying = copied([*range(100, 120), 17, 18, *range(120, 140), 7, 8, 9, *range(140, 150)])
    assert list(copying.draft(SOURCE, copying.place, 13)) == [*range(150, 160), 7, 8, 9]


def test_an_edit_that_was_drafted_and_made_keeps_the_copy_in_place() -> None:
    copying = copied([*range(100, 120), 17, 18, *range(120, 130)])
    for token in [*range(130, 140), 17, 18, 140]:
        copying.append(token)
    assert not copying.left
    assert SOURCE.tokens[copying.place] == 141


def test_a_copy_that_left_long_ago_is_over() -> None:
    copying = copied([*range(100, 110), *[5] * (MOST_APART + 1)])
    assert copying.source is None
    assert copying.rejoined() is None


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.lists(st.integers(0, 4), max_size=80))
def test_no_answer_leads_out_of_the_source(source: list[int], answer: list[int]) -> None:
    places, copying = Places(source), Copying()
    copying.follow(places, 0, 1)
    for at, token in enumerate(answer, 1):
        copying.append(token)
        assert len(copying.left) <= MOST_APART
        rejoined = copying.rejoined()
        if rejoined is not None and copying.source is not None:
            place, run = rejoined
            assert 0 < place <= len(source)
            assert source[place - run : place] == answer[at - run : at]
            if run:
                copying.follow(places, place, run)
        assert 0 <= copying.place <= len(source)
        assert len(copying.draft(places, copying.place, 7)) <= 7
