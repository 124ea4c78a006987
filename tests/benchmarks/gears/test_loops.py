from __future__ import annotations

import random

from benchmarks.gears.loops import LOOP_SHARE, is_loop, looped_share


def test_a_loop_is_measured_from_its_first_repetition_to_the_end() -> None:
    new = list(range(100, 160))
    assert looped_share(new + [1, 2, 3] * 10) == 30 / 90
    assert looped_share([7] * 50) == 1.0
    assert looped_share([*range(20), *range(20)]) == 1.0


def test_only_what_lasts_to_the_end_counts_but_for_a_few_last_tokens() -> None:
    new = list(range(100, 130))
    assert looped_share([1, 2] * 20 + new) == 0.0
    assert looped_share(new + [1, 2] * 15 + [50, 51]) == 30 / 62
    assert not is_loop(new + [1, 2] * 15 + [50, 51, 52, 53, 54])


def test_text_that_repeats_words_is_no_loop() -> None:
    draw = random.Random(3)
    assert looped_share([draw.randrange(1000) for _ in range(400)]) < 0.05
    lines = [token for number in range(40) for token in (1, 2, 3, 4, 5, 1000 + number)]
    assert not is_loop(lines)


def test_the_border_belongs_to_the_answers_that_count() -> None:
    tokens = list(range(100, 170)) + [1, 2, 3] * 10
    assert looped_share(tokens) == LOOP_SHARE
    assert not is_loop(tokens)
    assert is_loop(tokens[1:])


def test_answers_without_tokens_or_with_one() -> None:
    assert looped_share([]) == 0.0
    assert looped_share([5]) == 0.0
