from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.engine.local.drafting import Drafter, RecentOutputs, TurnDrafts
from gearshift.engine.local.drafting.places import RUNS
from gearshift.engine.local.drafting.recent import MOST_OUTPUTS
from gearshift.engine.local.drafting.turn import MOST_CANDIDATES
from tests.engine.local.drafting.naive import longest_match, occurs

SMALL = st.lists(st.integers(0, 5), min_size=1, max_size=60)


def replay(drafter: Drafter, answer: Sequence[int], most: int = 15) -> tuple[int, int]:
    """Steps that the answer takes and drafted tokens that were not kept."""
    done = steps = wasted = 0
    while done < len(answer):
        draft = drafter.propose(min(most, len(answer) - done - 1)).tokens
        kept = 0
        while kept < len(draft) and draft[kept] == answer[done + kept]:
            kept += 1
        drafter.learn(len(draft), kept)
        drafter.append(answer[done : done + kept + 1])
        done += kept + 1
        steps += 1
        wasted += len(draft) - kept
    return steps, wasted


@given(SMALL, SMALL, SMALL, SMALL, st.integers(0, 9))
def test_drafts_are_made_of_what_the_sources_hold(
    prompt: list[int], prediction: list[int], output: list[int], answer: list[int], most: int
) -> None:
    prompt, prediction = [token + 10 for token in prompt], [token + 20 for token in prediction]
    recent = RecentOutputs()
    recent.add("mine", output)
    drafter = TurnDrafts(prompt, prediction, recent.view("mine"))
    known = list(prompt)
    for token in answer:
        draft = drafter.propose(most)
        assert len(draft.tokens) <= most
        assert 0.0 <= draft.odds <= 1.0
        assert set(draft.tokens) <= set(known) | set(prediction) | set(output)
        drafter.learn(len(draft.tokens), 0)
        drafter.append([token])
        known.append(token)


@given(SMALL, st.integers(1, 9))
def test_the_first_draft_continues_a_place_of_the_prompt(prompt: list[int], most: int) -> None:
    draft = TurnDrafts(prompt).propose(most)
    assert bool(draft.tokens) <= (longest_match(prompt) > 0)
    if draft.tokens:
        assert occurs([*prompt[-2:], *draft.tokens], [*prompt, *draft.tokens][:-1])


def test_a_copy_goes_in_full_drafts() -> None:
    text = list(range(100, 400))
    steps, wasted = replay(TurnDrafts([1, 2, *text, 3, 100, 101]), text[2:])
    assert steps <= len(text) // 16 + 3
    assert wasted == 0


def test_the_predicted_output_is_drafted_from_its_beginning() -> None:
    text = list(range(100, 400))
    steps, wasted = replay(TurnDrafts([1, 2, 3], text), text)
    assert steps <= len(text) // 16 + 8
    assert wasted == 0


def test_a_copy_resumes_behind_an_edit() -> None:
    text = list(range(100, 400))
    answer = [*text[:50], 1000, 1001, *text[52:100], 1002, 1003, 1004, *text[101:]]
    steps, _ = replay(TurnDrafts([1, 2, 3], text), answer)
    assert steps <= len(text) // 16 + 18


def test_a_rename_is_drafted_through_once_it_was_seen() -> None:
    """The same three tokens become two others ten times: the later places cost no step of their own."""
    parts = [[*range(start, start + 29), 7, 8, 9] for start in range(100, 500, 40)]
    renamed = [[*part[:-3], 17, 18] for part in parts]
    text, answer = list(chain(*parts)), list(chain(*renamed))
    steps, _ = replay(TurnDrafts([1, 2, 3], text), answer)
    assert steps <= len(answer) // 16 + 14


def test_text_without_matches_costs_no_rows() -> None:
    drafter = TurnDrafts(range(100))
    steps, wasted = replay(drafter, range(1000, 1300))
    assert (steps, wasted) == (300, 0)


def test_drafts_that_fail_are_given_up() -> None:
    """Noise over few tokens: every pair of them was there before and says nothing of what comes next."""
    noise = Random(1)
    text = [noise.randrange(30) for _ in range(4000)]
    _, wasted = replay(TurnDrafts(text[:3000]), text[3000:])
    assert wasted < 1000 // 3


def test_drafts_that_always_break_at_the_same_place_end_there() -> None:
    prompt = [token for i in range(400) for token in (5, 6, 1000 + i)]
    answer = [token for i in range(400) for token in (5, 6, 5000 + i)]
    steps, wasted = replay(TurnDrafts(prompt), answer)
    assert steps < len(answer) * 0.6
    assert wasted < len(answer)


@pytest.mark.parametrize("prompt", [[7] * 30_000, [1, 2] * 15_000, [t for i in range(10_000) for t in (1, 2, i)]])
def test_no_text_makes_a_proposal_look_at_many_places(prompt: list[int]) -> None:
    recent = RecentOutputs()
    for _ in range(MOST_OUTPUTS):
        recent.add("mine", prompt[:1000])
    drafter = TurnDrafts([*prompt, *prompt[:9]], prompt, recent.view("mine"))
    while drafter.index_more(10_000):
        pass
    for token in (1, 2, 7, 7, 7, 1, 2, 9, 1, 2, 1, 2):
        drafter.propose(15)
        assert drafter.examined <= len(RUNS) * MOST_CANDIDATES
        drafter.append([token])
    assert drafter.entries <= 2 * len(RUNS) * (len(prompt) + 30)
