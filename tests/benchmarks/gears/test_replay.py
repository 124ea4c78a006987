from __future__ import annotations

from array import array

import pytest
from benchmarks.gears.replay import MOST, Answer, MakeDrafter, PromptLookup, replay, table

from gearshift.engine.local.drafting import TurnDrafts

COPY = Answer("copy-0", "copy", array("i", [1, 2, *range(100, 200), 3, 100, 101]), array("i", range(102, 200)))
NEW = Answer("explain-0", "explain", array("i", range(50)), array("i", range(500, 560)))


@pytest.mark.parametrize("make", [PromptLookup, TurnDrafts])
def test_every_token_of_an_answer_comes_in_one_step_or_another(make: MakeDrafter) -> None:
    for answer in (COPY, NEW):
        result = replay(answer, make)
        assert result.tokens == len(answer.ids) == 1 + result.steps + result.kept
        assert len(result.seconds) == result.steps


def test_the_peer_finds_the_last_place_of_the_longest_run() -> None:
    peer = PromptLookup([5, 6, 7, 1, 9, 6, 7, 2, 5, 6, 7])
    assert list(peer.propose(2).tokens) == [1, 9]
    peer.append([8, 6, 7])
    assert list(peer.propose(2).tokens) == [8, 6]


def test_a_copy_goes_in_full_drafts_and_new_text_in_single_steps() -> None:
    assert replay(COPY, PromptLookup).steps == -(-97 // (MOST + 1))
    assert replay(NEW, PromptLookup).steps == 59


def test_the_table_has_a_line_for_every_kind_and_drafter() -> None:
    lines = list(table([COPY, NEW], {"peer": PromptLookup}))
    assert lines[0].startswith("| kind | answers, tokens | peer")
    assert any(line.startswith("| free-form explanation | 1, 60 | 1.02, 0.00 |") for line in lines)
    assert lines[-1].startswith("\npeer: ")
