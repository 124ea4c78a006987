from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from gearshift.engine.local.drafting.places import RUNS, Places, keys_of
from tests.engine.local.drafting.naive import longest_match

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=80)


def longest_found(places: Places) -> int:
    """Length of the longest match of the text's own tail that the index finds when all candidates are looked at."""
    tail = places.tokens[-32:]
    for level, key in keys_of(tail):
        runs = [places.match(place, tail) for place in places.find(level, key, len(places.tokens))]
        if runs:
            return max(runs)
    return 0


@given(TEXTS)
def test_the_longest_match_is_the_one_a_naive_search_finds(text: list[int]) -> None:
    places = Places(text)
    places.index(len(text))
    assert longest_found(places) == longest_match(text)


@given(TEXTS, TEXTS, st.integers(1, 9))
def test_indexing_in_slices_while_the_text_grows_finds_the_same(first: list[int], more: list[int], most: int) -> None:
    places, at_once = Places(first), Places(first + more)
    places.index(most)
    places.tokens.extend(more)
    while places.index(most):
        pass
    at_once.index(len(first) + len(more))
    tail = at_once.tokens[-32:]
    for level, key in keys_of(tail):
        assert list(places.find(level, key, 1000)) == list(at_once.find(level, key, 1000))


@given(TEXTS)
def test_places_come_from_the_last_to_the_first(text: list[int]) -> None:
    places = Places(text)
    places.index(len(text))
    for level, key in keys_of(array("i", text)):
        found = list(places.find(level, key, 100))
        run = RUNS[level]
        assert found == [at for at in range(len(text) - 1, run - 1, -1) if text[at - run : at] == text[-run:]]


def test_one_token_many_times_takes_memory_by_its_length_only() -> None:
    places = Places([7] * 30_000)
    places.index(30_000)
    assert places.entries == len(RUNS) * (30_000 + 1)
    assert list(places.find(0, keys_of(places.tokens[-32:])[0][1], 2)) == [29_999, 29_998]


@given(TEXTS)
def test_index_says_how_much_it_did(text: list[int]) -> None:
    places = Places(text)
    assert places.index(5) == min(5, len(text))
    assert places.index(1000) == max(len(text) - 5, 0)
    assert places.index(1000) == 0
