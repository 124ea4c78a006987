"""A lane with a stand-in for the kernel: any company, cache, chunk size, preemption or cancellation, same tokens."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.caller import Work
from gearshift.catalog import GEARS, GearName
from gearshift.engine.local.constraints import Matcher
from gearshift.engine.local.lane import Lane, LaneLimits
from gearshift.engine.local.scheduler import BLOCK_TOKENS, MOST_LEFT_OUT, PATIENCE, PROTECTED_AFTER, blocks_for
from gearshift.engine.local.sequence import Turn
from gearshift.engine.protocol import ChoiceEnd, Delta, Drafts, Grammar, Overloaded, Sampling, Started
from tests.engine.local.stand_in import GRAMMARS, PIECES, VOCABULARY, HalfRight, StandIn, answer, told, turn_of

LONGEST = 256
GREEDY = Sampling(temperature=0.0, ignore_eos=True)


def lane_of(kernel: StandIn, seats: int = 8, rows: int = 256, context: int = LONGEST) -> Lane:
    limits = LaneLimits(seats, len(kernel.memory), context, max(rows, seats), stall_s=0.0)
    return still(Lane("stand-in", kernel, VOCABULARY, limits, HalfRight))


def still(lane: Lane) -> Lane:
    """A lane with a machine of constant speed: which drafts pay must not depend on the time that a test takes."""
    observe = lane.meter.observe

    def constant(rows: int, seconds: float, keys: int = 0) -> None:
        observe(rows, 0.001 * (1 + 0.15 * (rows - 1)), keys)

    lane.meter.observe = constant
    return lane


def run_step(lane: Lane) -> set[Turn]:
    step = lane.schedule()
    assert step.rows, "nothing to run"
    return set(lane.commit(lane.run(step)))


def run(lane: Lane) -> None:
    while lane.busy:
        run_step(lane)
    lane.pool.audit()
    assert lane.pool.free == lane.pool.total
    assert lane.seats.free == lane.limits.seats


@dataclass(frozen=True)
class Visit:
    """A turn of a random load: a prefix out of a few, something of its own, when it comes and when it is cancelled."""

    arrives: int
    prefix: int
    prefix_tokens: int
    own_tokens: int
    scope: str
    gear: GearName
    limit: int
    sampling: Sampling
    cancel_after: int | None
    grammar: str | None

    @property
    def prompt(self) -> list[int]:
        prefix = [1 + (i * i + self.prefix) % 11 for i in range(self.prefix_tokens)]
        return prefix + [1 + (i * 7 + self.own_tokens) % 12 for i in range(self.own_tokens)]

    @property
    def matcher(self) -> Matcher | None:
        return MATCHERS[self.grammar] if self.grammar and not self.sampling.ignore_eos else None


MATCHERS = {
    grammar: GRAMMARS.compile(Grammar(f"start: {grammar}"))
    for grammar in (
        r"/[abc]{2,30}( [d-j]{1,3}){0,9}\n/",
        r'"abcabc" ("dee" | "é")+ "\n jjjjjjjjjj"',
        r"/(ab|abc|é|🙂|\n)*j?/",
    )
}


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 2),
    n=st.sampled_from([1, 1, 1, 2, 3]),
    ignore_eos=st.booleans(),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.5]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.2]),
    logit_bias=st.sampled_from([(), (), ((3, 1.0), (1, -2.0))]),
    logprobs=st.sampled_from([None, None, 0, 3]),
)
VISITS = st.lists(
    st.builds(
        Visit,
        arrives=st.integers(0, 30),
        prefix=st.integers(0, 1),
        prefix_tokens=st.integers(0, 130),
        own_tokens=st.integers(1, 40),
        scope=st.sampled_from("xy"),
        gear=st.sampled_from(["standard", "standard", "priority", "ultrafast"]),
        limit=st.integers(1, 70),
        sampling=SAMPLINGS,
        cancel_after=st.one_of(st.none(), st.none(), st.integers(0, 40)),
        grammar=st.sampled_from([None, *MATCHERS]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("examples", [60, pytest.param(1500, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_every_turn_gets_its_own_answer_in_any_company(examples: int) -> None:
    @given(
        VISITS, st.integers(1, 6), st.sampled_from([8, 10, 14, 200]), st.sampled_from([1, 2, 7, 31, 32, 33, 100, 300])
    )
    @settings(max_examples=examples, deadline=None)
    def check(visits: list[Visit], seats: int, blocks: int, rows: int) -> None:
        lane = lane_of(StandIn(blocks), seats, rows)
        lane._chunk = rows  # pyright: ignore[reportPrivateUsage]
        turns = [turn_of(v.prompt, v.sampling, v.limit, v.gear, v.scope, matcher=v.matcher) for v in visits]
        for time in range(100_000):
            for visit, turn in zip(visits, turns, strict=True):
                if visit.arrives == time:
                    lane.add(turn)
                if visit.cancel_after is not None and visit.arrives + visit.cancel_after == time:
                    lane.cancel(turn)
            lane.pool.audit()
            if lane.busy:
                run_step(lane)
            elif time > 80:
                break
        run(lane)
        for visit, turn in zip(visits, turns, strict=True):
            check_answer(visit, turn)

    check()


def check_answer(visit: Visit, turn: Turn) -> None:
    if not turn.outbox:
        assert turn.cancelled
        return
    events = told(turn.outbox)
    assert events.started.prompt_tokens == len(visit.prompt)
    assert events.started.cached_tokens <= (len(visit.prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    for choice in range(visit.sampling.n):
        expected = answer(visit.prompt, visit.sampling, visit.limit, choice, visit.matcher)
        produced = events.tokens.get(choice, [])
        if turn.cancelled and choice not in events.ends:
            assert produced == expected[: len(produced)]
            continue
        assert produced == expected
        ended = expected[-1] == 0 and not visit.sampling.ignore_eos
        if visit.matcher is not None:
            follows = visit.matcher.copy()
            for token in expected[: len(expected) - ended]:
                follows.advance(token)
            assert not follows.problem
            ended = ended or follows.complete
        assert events.ends[choice].reason == ("stop" if ended else "length")
        assert events.texts[choice] == b"".join(PIECES[token] for token in expected).decode("utf-8", "replace")


def test_a_prefix_is_computed_once_and_found_while_it_is_being_computed() -> None:
    kernel = StandIn(100)
    lane = lane_of(kernel, rows=64, context=400)
    prefix = [1 + i % 9 for i in range(200)]
    turns = [turn_of([*prefix, i + 1], Sampling(), 1) for i in range(4)]
    for turn in turns:
        lane.add(turn)
    run(lane)
    own = 201 - 192
    assert kernel.computed == 201 + 3 * own
    assert [told(turn.outbox).started.cached_tokens for turn in turns] == [0, 192, 192, 192]


def test_another_scope_finds_nothing() -> None:
    kernel = StandIn(100)
    lane = lane_of(kernel)
    for scope in ("x", "y", "x"):
        turn = turn_of([1] * 100, Sampling(), 1, scope=scope)
        lane.add(turn)
        run(lane)
    assert kernel.computed == 100 + 100 + 4


@pytest.mark.parametrize(("length", "cached"), [(31, 0), (32, 0), (33, 32), (64, 32), (65, 64)])
def test_the_last_token_of_a_prompt_is_always_computed(length: int, cached: int) -> None:
    lane = lane_of(StandIn(100))
    for expected in (0, cached):
        turn = turn_of([2] * length, Sampling(), 1)
        lane.add(turn)
        run(lane)
        assert told(turn.outbox).started.cached_tokens == expected


def test_an_answer_is_found_by_the_next_turn_of_the_conversation() -> None:
    lane = lane_of(StandIn(100))
    first = turn_of([3] * 20, sampling := Sampling(temperature=0.0, ignore_eos=True), 60)
    lane.add(first)
    run(lane)
    tokens = [3] * 20 + told(first.outbox).tokens[0]
    second = turn_of([*tokens, 5, 5], sampling, 1)
    lane.add(second)
    run(lane)
    assert told(second.outbox).started.cached_tokens == 64


def test_who_waits_for_a_cancelled_turn_takes_over() -> None:
    kernel = StandIn(100)
    lane = lane_of(kernel, rows=32)
    first, second = (turn_of([4] * 200, Sampling(temperature=0.0), 1) for _ in range(2))
    lane.add(first)
    lane.add(second)
    run_step(lane)
    run_step(lane)
    assert [choice.waits for choice in lane.seated] == [False, True]
    lane.cancel(first)
    run(lane)
    assert kernel.computed == 200
    assert told(second.outbox).started.cached_tokens == 64
    assert told(second.outbox).tokens[0] == answer([4] * 200, Sampling(temperature=0.0), 1)
    assert not any(isinstance(event, ChoiceEnd) for event in first.outbox)


def test_a_fast_turn_does_not_wait_for_a_slower_one_with_the_same_prefix() -> None:
    lane = lane_of(StandIn(100), rows=32)
    slow, fast = turn_of([4] * 150, Sampling(), 1), turn_of([4] * 150, Sampling(), 1, gear="ultrafast")
    lane.add(slow)
    run_step(lane)
    lane.add(fast)
    for _ in range(5):
        run_step(lane)
    assert any(isinstance(event, ChoiceEnd) for event in fast.outbox)
    assert not any(isinstance(event, ChoiceEnd) for event in slow.outbox)
    run(lane)


def test_a_standard_turn_gets_a_seat_beside_an_endless_flow_of_fast_ones() -> None:
    lane = lane_of(StandIn(100), seats=1)
    lane.add(turn_of([1], GREEDY, 1, gear="ultrafast"))
    standard = turn_of([2], GREEDY, 1)
    lane.add(standard)
    for _ in range((PATIENCE + 2) * (PROTECTED_AFTER + 1)):  # it is displaced a few times first
        assert not standard.outbox, "served before a fast one"
        lane.add(turn_of([1], GREEDY, 1, gear="ultrafast"))
        run_step(lane)
        if standard.outbox:
            break
    assert told(standard.outbox).ends[0].reason == "length"
    run(lane)


def test_streams_advance_in_every_step_beside_a_long_prompt() -> None:
    """The time allowed for a stall is 0 here, so a measured lane cuts prompts as small as it ever does."""
    kernel = StandIn(200)
    lane = lane_of(kernel, seats=2, context=2000)
    stream, long = turn_of([1], GREEDY, 100), turn_of([2] * 1000, GREEDY, 1)
    lane.add(stream)
    run_step(lane)
    lane.add(long)
    run_step(lane)
    steps = 0
    while not long.started or long.open:
        produced, computed = len(stream.outbox), kernel.computed
        run_step(lane)
        steps += 1
        assert len(stream.outbox) == produced + 1
        assert kernel.computed - computed <= 1 + 32
    assert steps >= (1000 - 256) // 32
    run(lane)


def test_cancelling_frees_blocks_at_once() -> None:
    lane = lane_of(StandIn(100))
    turn = turn_of([4] * 100, Sampling(n=3), 50)
    lane.add(turn)
    run_step(lane)
    assert lane.pool.free < 100
    lane.cancel(turn)
    assert lane.pool.free == 100
    assert not lane.busy
    lane.cancel(turn)


def test_preemption_repeats_and_loses_nothing() -> None:
    kernel = StandIn(6)
    lane = lane_of(kernel, seats=4, context=6 * BLOCK_TOKENS)
    sampling = Sampling(temperature=0.0, ignore_eos=True)
    turns = [turn_of([i + 1] * 30, sampling, 150) for i in range(4)]
    for turn in turns:
        lane.add(turn)
    preempted = 0
    while lane.busy:
        run_step(lane)
        preempted += sum(choice.preempted for choice in lane.waiting)
    assert preempted > 0
    for i, turn in enumerate(turns):
        assert told(turn.outbox).tokens[0] == answer([i + 1] * 30, sampling, 150)


def test_a_failing_step_fails_its_turns_and_no_others() -> None:
    kernel = StandIn(100)
    kernel.fail_on = 9
    lane = lane_of(kernel, seats=2)
    bad, good = turn_of([9, 9], Sampling(), 5), turn_of([8, 8], Sampling(temperature=0.0), 5, scope="y")
    lane.add(bad)
    assert run_step(lane) == {bad}
    assert bad.failure is not None
    assert "this token breaks the step" in str(bad.failure)
    lane.add(good)
    kernel.fail_on = None
    run(lane)
    assert told(good.outbox).tokens[0] == answer([8, 8], Sampling(temperature=0.0), 5)


def test_a_row_without_finite_logits_fails_its_turn_alone() -> None:
    kernel = StandIn(100)
    kernel.no_logits_on = 12
    lane = lane_of(kernel)
    bad, good = turn_of([12], Sampling(n=2), 5), turn_of([8], Sampling(), 1)
    lane.add(bad)
    lane.add(good)
    assert run_step(lane) == {bad, good}
    assert "no finite logits" in str(bad.failure)
    assert bad.outbox == [Started(1, 0, 0, "standard")]
    assert good.failure is None
    run(lane)


def test_a_stop_string_ends_a_choice_across_tokens() -> None:
    sampling = Sampling(temperature=0.0, ignore_eos=True)
    ids = answer([5], sampling, 200)
    text = b"".join(PIECES[token] for token in ids).decode("utf-8", "replace")
    stop = text[40:44]
    turn = turn_of([5], Sampling(temperature=0.0, ignore_eos=True, stop=(stop, "never there")), 200)
    lane = lane_of(StandIn(100))
    lane.add(turn)
    run(lane)
    events = told(turn.outbox)
    assert events.texts[0] == text[: text.index(stop)]
    produced = len(events.tokens[0])
    assert events.ends[0] == ChoiceEnd(0, "stop", produced, stop, Work(steps=produced, rows=produced))
    assert events.tokens[0] == ids[: len(events.tokens[0])]


def test_drafts_are_kept_exactly_as_far_as_the_model_agrees() -> None:
    sampling = Sampling(temperature=0.0, ignore_eos=True, frequency_penalty=0.5, logprobs=1)
    turn = turn_of([5, 6], sampling, 200, "ultrafast")
    lane = lane_of(StandIn(100))
    lane.add(turn)
    run(lane)
    events = told(turn.outbox)
    assert events.tokens[0] == answer([5, 6], sampling, 200)
    deltas = [event for event in turn.outbox if isinstance(event, Delta)]
    work = events.ends[0].work
    assert work.steps == len(deltas) < 100
    assert work.kept == sum(delta.kept for delta in deltas) == 200 - len(deltas)
    assert work.rows == work.steps + work.drafted
    assert work.drafted > work.kept
    assert all(len(delta.logprobs) == len(delta.token_ids) == delta.kept + 1 for delta in deltas)


def test_an_end_inside_a_draft_cuts_there() -> None:
    """What lies behind the end was computed, but is neither told, nor counted, nor findable."""
    sampling = Sampling(temperature=0.0)
    prompt = next([t] for t in range(1, 12) if 20 < len(answer([t], sampling, 400)) < 400)
    expected = answer(prompt, sampling, 400)
    turn = turn_of(prompt, sampling, 400, "ultrafast")
    lane = lane_of(StandIn(100), context=500)
    lane.add(turn)
    run(lane)
    events = told(turn.outbox)
    assert events.tokens[0] == expected
    assert events.ends[0].completion_tokens == len(expected)
    behind = turn_of([*prompt, *expected, *range(1, 12), *range(1, 12), *range(1, 12)], sampling, 1)
    lane.add(behind)
    run(lane)
    assert told(behind.outbox).started.cached_tokens <= len(prompt) + len(expected)


def test_logprobs_go_with_their_tokens() -> None:
    turn = turn_of([5], Sampling(logprobs=2, ignore_eos=True), 3)
    lane = lane_of(StandIn(10))
    lane.add(turn)
    run(lane)
    deltas = [event for event in turn.outbox if isinstance(event, Delta)]
    assert [len(delta.logprobs) for delta in deltas] == [1, 1, 1]
    for delta in deltas:
        (entry,) = delta.logprobs
        assert (entry.token_id,) == delta.token_ids
        assert entry.token == PIECES[entry.token_id]
        assert [(top.token_id, top.logprob) for top in entry.top] == [(0, 0.0), (1, -1.0)]


def test_a_tiny_cache_serves_a_sequence_that_just_fits() -> None:
    lane = lane_of(StandIn(blocks_for(100)), context=blocks_for(100) * BLOCK_TOKENS)
    turn = turn_of([6] * 50, Sampling(temperature=0.0, ignore_eos=True), 78)
    lane.add(turn)
    run(lane)
    assert told(turn.outbox).ends[0].reason == "length"


def test_a_turn_falls_to_a_lower_gear_only_if_it_may() -> None:
    lane = lane_of(StandIn(100))
    seats = GEARS["ultrafast"].seats
    assert seats is not None
    turns = [turn_of([1 + i], GREEDY, 3, "ultrafast") for i in range(seats + 2)]
    turns[-1].gear_fallback = True
    for turn in turns:
        lane.add(turn)
    run_step(lane)
    assert [told_gear(turn) for turn in turns] == ["ultrafast"] * seats + [None, "priority"]
    run(lane)
    assert told_gear(turns[-2]) == "ultrafast"


def told_gear(turn: Turn) -> str | None:
    return turn.outbox[0].gear if turn.outbox and isinstance(turn.outbox[0], Started) else None


def test_a_turn_that_waited_too_long_is_told_when_to_come_back() -> None:
    lane = lane_of(StandIn(100), seats=1)
    first, second = turn_of([1], GREEDY, 50, "ultrafast"), turn_of([2], GREEDY, 5, "ultrafast")
    first.arrived = second.arrived = 1000.0
    lane.add(first)
    lane.add(second)
    run_step(lane)
    wait = GEARS["ultrafast"].queue_wait_s
    assert lane.expire(1000.0 + wait - 0.1) == []
    assert lane.expire(1000.0 + wait + 0.1) == [second]
    assert isinstance(second.failure, Overloaded)
    assert second.failure.retry_after_s == wait
    run(lane)
    assert first.failure is None
    assert told(first.outbox).tokens[0] == answer([1], GREEDY, 50)


def test_a_full_house_makes_place_for_an_ultrafast_turn_at_the_next_step() -> None:
    lane = lane_of(StandIn(100), seats=3)
    others = [turn_of([1 + i], GREEDY, 60) for i in range(3)]
    for turn in others:
        lane.add(turn)
    run_step(lane)
    fast = turn_of([9, 9], GREEDY, 20, "ultrafast")
    lane.add(fast)
    assert fast in run_step(lane)
    run(lane)
    for i, turn in enumerate(others):
        assert told(turn.outbox).tokens[0] == answer([1 + i], GREEDY, 60)
    assert told(fast.outbox).tokens[0] == answer([9, 9], GREEDY, 20)


def test_a_cold_turn_never_drafts_from_another() -> None:
    """The same turn again: warm it is all drafts, cold it is as slow as before."""
    lane = still(Lane("m", StandIn(100), VOCABULARY, LaneLimits(4, 100, LONGEST, 256, stall_s=0.0)))

    def kept(drafts: Drafts) -> int:
        turn = turn_of([3, 1, 2], GREEDY, 100, "ultrafast")
        turn.drafts = drafts
        lane.add(turn)
        run(lane)
        events = told(turn.outbox)
        assert events.tokens[0] == answer([3, 1, 2], GREEDY, 100)
        return events.ends[0].work.kept

    cold = kept("cold")
    assert kept("cold") == cold
    kept("warm")
    assert kept("cold") == cold
    assert kept("warm") > cold + 30
    assert kept("off") == 0


def test_a_thousand_short_ultrafast_turns_in_a_row_starve_nobody() -> None:
    lane = lane_of(StandIn(300))
    others = [turn_of([1 + i], GREEDY, 200) for i in range(4)]
    for turn in others:
        lane.add(turn)
    waited = dict.fromkeys(others, 0)
    for served in range(1000):
        fast = turn_of([5 + served % 7], GREEDY, 3, "ultrafast")
        lane.add(fast)
        while fast.open or not fast.started:
            told_now = run_step(lane)
            for turn in others:
                waited[turn] = 0 if turn in told_now or not turn.open else waited[turn] + 1
                assert waited[turn] <= MOST_LEFT_OUT
        assert told(fast.outbox).tokens[0] == answer([5 + served % 7], GREEDY, 3)
    run(lane)
    for i, turn in enumerate(others):
        assert told(turn.outbox).tokens[0] == answer([1 + i], GREEDY, 200)
