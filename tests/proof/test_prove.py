"""A proof sees every kind of difference, says where it is, and does not claim what it has not seen."""

from __future__ import annotations

import asyncio
import signal

import pytest

from gearshift.proof.answers import Runner
from gearshift.proof.cases import Case, cases, digest
from gearshift.proof.passes import ANCHOR, PASSES
from gearshift.proof.prove import Proof
from gearshift.proof.report import EXIT_CODES, Report, Subject
from tests.proof.erring import WINDOW, ErringEngine, Slip

SMALL = 600


def subject(made: list[Case]) -> Subject:
    return Subject("erring", "0" * 64, "none", "0" * 64, 1, "test", 7, len(made), digest(made))


def cases_of(engine: ErringEngine, number: int = 24, seed: int = 7) -> list[Case]:
    return asyncio.run(cases(number, seed, lambda prompt: engine.count_tokens("erring", prompt), [SMALL]))


def nobody(where: str, done: int, total: int) -> None:
    """Progress for nobody."""


def proven(engine: ErringEngine, number: int = 24) -> Report:
    made = cases_of(engine, number)
    runner = Runner(engine, "erring")
    proof = Proof(runner, runner, SMALL, made, Report(subject(made), "today"), nobody)
    return asyncio.run(proof.run())


def test_equal_answers_with_drafts_at_work_are_a_proof() -> None:
    engine = ErringEngine()
    report = proven(engine)
    assert report.verdict == "identical"
    assert report.kept > 0
    assert report.rejected == 2 * report.kept
    assert [one.name for one in report.passes] == [how.name for how in PASSES]
    answers = sum(len(case.script.says) * case.sampling.n for case in cases_of(engine))
    assert report.compared_answers > answers * (len(PASSES) - 2)
    assert "verdict: identical" in str(report)
    assert {g.drafts for g in engine.seen} == {"off", "cold"}


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("token", "token 2 is"),
        ("length", "the number of tokens, here 2 is 2"),
        ("logprob", "the log-probability of token 2 is"),
        ("ending", "the ending after token"),
        ("gear", "the gear of turn 0 is 'standard'"),
    ],
)
def test_one_slip_in_one_gear_is_a_difference(what: str, says: str) -> None:
    def where(generation: object) -> bool:
        text = repr(generation)
        return "gear='ultrafast'" in text and "logprobs=5" in text

    report = proven(ErringEngine(Slip(what, 2, where)))
    assert report.verdict == "different"
    assert EXIT_CODES[report.verdict] == 1
    assert report.first is not None
    assert report.first.gear == "ultrafast"
    assert report.first.in_pass == "ultrafast, idle"
    assert says.replace("'", "") in str(report.first).replace("'", "")
    assert "DIFFERENT" in str(report)


def test_a_slip_in_a_later_turn_of_a_conversation_is_found_there() -> None:
    report = proven(
        ErringEngine(Slip("token", 0, lambda g: g.gear == "priority" and repr(g.prompt).count("assistant") == 2))
    )
    assert report.first is not None
    assert report.first.turn == 2
    assert report.first.case.startswith("conversation")


@pytest.mark.parametrize(("kept", "drafted"), [(0, 0), (0, 3), (3, 3)])
def test_without_drafts_kept_and_rejected_nothing_is_proven(kept: int, drafted: int) -> None:
    report = proven(ErringEngine(kept=kept, drafted=drafted))
    assert report.verdict == "nothing proven"
    assert EXIT_CODES[report.verdict] == 2
    assert report.differences == 0
    assert "nothing proven" in str(report)


def test_an_interrupted_proof_claims_nothing() -> None:
    engine = ErringEngine()
    made = cases_of(engine)
    runner = Runner(engine, "erring")
    report = Report(subject(made), "today")
    seen: list[str] = []

    def stop(where: str, done: int, total: int) -> None:
        seen.append(where)
        if done == total // 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(Proof(runner, runner, SMALL, made, report, stop).run())
    assert report.verdict == "interrupted"
    assert EXIT_CODES[report.verdict] == 130
    assert report.compared_tokens > 0
    assert set(seen) < {how.name for how in PASSES}


def test_the_same_seed_makes_the_same_cases_and_another_does_not() -> None:
    engine = ErringEngine()
    assert digest(cases_of(engine)) == digest(cases_of(engine))
    assert digest(cases_of(engine)) != digest(cases_of(engine, seed=8))


def test_every_kind_of_prompt_meets_every_way_of_choosing() -> None:
    made = cases_of(ErringEngine(), 105)
    assert len({case.name.rpartition(", no. ")[0] for case in made}) == 105
    ways = {case.sampling for case in made}
    assert any(s.logit_bias for s in ways)
    assert any(s.stop for s in ways)
    assert sum(case.constraint is not None for case in made) == 16
    assert {s.n for s in ways} == {1, 2, 3}
    assert {s.temperature > 0 for s in ways} == {True, False}


def test_the_last_case_fills_the_small_window_exactly() -> None:
    engine = ErringEngine()
    edge = cases_of(engine)[-1]
    prompt = asyncio.run(engine.count_tokens("erring", edge.prompt([])))
    assert edge.sampling.max_tokens is not None
    assert prompt + edge.sampling.max_tokens == edge.tokens == SMALL < WINDOW
    assert edge.sampling.max_tokens >= 16


def test_the_anchor_guesses_nothing_and_shares_nothing() -> None:
    assert PASSES[0] is ANCHOR
    assert (ANCHOR.drafts, ANCHOR.at_once, ANCHOR.others) == ("off", 1, 0)
    assert all(how.drafts == "cold" for how in PASSES[1:])
    assert {gear for how in PASSES for gear in how.gears} == {"standard", "priority", "ultrafast"}
