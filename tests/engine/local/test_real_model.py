"""The real model in the lane: one answer, whatever runs beside it, is cached, is cut into chunks or is preempted.

Equal means bit-identical: token ids and log-probabilities are compared exactly.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from gearshift import _kernel
from gearshift.catalog import GearName
from gearshift.engine.local.lane import Lane, LaneLimits
from gearshift.engine.local.load import OpenModel, forward_of
from gearshift.engine.local.scheduler import BLOCK_TOKENS, blocks_for
from gearshift.engine.local.sequence import Turn
from gearshift.engine.protocol import Delta, Sampling, Started
from tests.engine.local.stand_in import turn_of

GREEDY = Sampling(temperature=0.0, ignore_eos=True, logprobs=2)
TEXTS = [
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "The gears of a machine pass on",
    "1. Wake up\n2. Drink water\n3.",
    "今天天气很好，我们一起去",
    '{"name": "Ada", "born": 1815, "known_for": ',
    "Once upon a time, in a small village by the sea, there lived an old fisherman who",
]

Answer = list[tuple[int, float, tuple[tuple[int, float], ...]]]
"""Token id, its log-probability, and the alternatives with theirs."""


@dataclass(frozen=True)
class Bench:
    """Makes lanes over the real model."""

    model: OpenModel
    threads: _kernel.Threads

    def lane(self, tokens: int = 16384, seats: int = 32, rows: int = 512, stall_s: float = 0.1) -> Lane:
        blocks = blocks_for(tokens)
        cache = _kernel.Cache(self.model.kernel, blocks)
        context = min(self.model.shape.context, blocks * BLOCK_TOKENS)
        limits = LaneLimits(seats, blocks, context, max(rows, seats), stall_s)
        forward = forward_of(self.model.kernel, cache, self.threads)
        return Lane("smollm2", forward, self.model.vocabulary(), limits)

    def ids(self, text: str) -> list[int]:
        return self.model.tokenizer.encode(text)

    def turn(self, prompt: Sequence[int], sampling: Sampling, limit: int, gear: GearName = "standard") -> Turn:
        return turn_of(prompt, sampling, limit, gear, vocabulary=self.model.vocabulary())

    def alone(self, prompt: Sequence[int], sampling: Sampling, limit: int) -> list[Answer]:
        return run(self.lane(tokens=2048, seats=4), [self.turn(prompt, sampling, limit)])[0]


@pytest.fixture(scope="module")
def bench(smollm2: OpenModel, kernel_threads: _kernel.Threads) -> Bench:
    return Bench(smollm2, kernel_threads)


def step(lane: Lane) -> None:
    lane.commit(lane.run(lane.schedule()))


def run(lane: Lane, turns: Sequence[Turn]) -> list[list[Answer]]:
    """Run turns that come one step after the other."""
    for turn in turns:
        lane.add(turn)
        step(lane)
    while lane.busy:
        step(lane)
    lane.pool.audit()
    assert lane.pool.free == lane.pool.total
    return [answers(turn) for turn in turns]


def answers(turn: Turn) -> list[Answer]:
    """What each choice of a turn produced."""
    assert turn.failure is None, turn.failure
    found: list[Answer] = [[] for _ in range(turn.sampling.n)]
    for event in turn.outbox:
        if isinstance(event, Delta):
            for entry in event.logprobs:
                top = tuple((other.token_id, other.logprob) for other in entry.top)
                found[event.choice].append((entry.token_id, entry.logprob, top))
    return found


def random_sampling(draw: random.Random) -> Sampling:
    return Sampling(
        temperature=draw.choice([0.0, 0.7, 1.3]),
        top_k=draw.choice([0, 0, 1, 40]),
        top_p=draw.choice([1.0, 0.9]),
        min_p=draw.choice([0.0, 0.05]),
        presence_penalty=draw.choice([0.0, 0.0, 0.4]),
        frequency_penalty=draw.choice([0.0, 0.0, 0.3]),
        repetition_penalty=draw.choice([1.0, 1.0, 1.15]),
        logit_bias=draw.choice([(), (), ((draw.randrange(49152), 5.0), (28, -3.0))]),
        seed=draw.randrange(2**53),
        logprobs=draw.choice([0, 3]),
        ignore_eos=True,
        n=draw.choice([1, 1, 1, 2]),
    )


def random_prompt(bench: Bench, draw: random.Random) -> list[int]:
    ids = bench.ids(draw.choice(TEXTS) * draw.choice([1, 1, 3]))
    return ids + [draw.randrange(100, 49152) for _ in range(draw.randrange(20))]


@pytest.mark.parametrize("others", [24, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_an_answer_is_the_same_alone_and_among_others(bench: Bench, others: int) -> None:
    draw = random.Random(20)
    probes = [(random_prompt(bench, draw), random_sampling(draw)) for _ in range(4)]
    alone = [bench.alone(prompt, sampling, 24) for prompt, sampling in probes]
    company = [(random_prompt(bench, draw), random_sampling(draw)) for _ in range(others)]
    mixed = [(p, s, draw.randrange(1, 40)) for p, s in company] + [(p, s, 24) for p, s in probes]
    places = list(range(len(mixed)))
    draw.shuffle(places)
    gears: Sequence[GearName] = ("standard", "priority", "ultrafast")
    turns = {place: bench.turn(*mixed[place], gear=draw.choice(gears)) for place in places}
    run(bench.lane(), list(turns.values()))
    assert [answers(turns[others + i]) for i in range(len(probes))] == alone


def test_an_answer_is_the_same_from_the_cache(bench: Bench) -> None:
    prompt = bench.ids(TEXTS[5] * 6)
    assert len(prompt) > 3 * BLOCK_TOKENS
    lane = bench.lane()
    for sampling in (GREEDY, replace(GREEDY, temperature=1.0, seed=11)):
        cold = bench.alone(prompt, sampling, 40)
        cached: list[int] = []
        for _ in range(2):
            turn = bench.turn(prompt, sampling, 40)
            assert run(lane, [turn])[0] == cold
            assert isinstance(turn.outbox[0], Started)
            cached.append(turn.outbox[0].cached_tokens)
        assert cached[1] == (len(prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
        longer = [*prompt, *(token for token, _, _ in cold[0])]
        assert run(lane, [bench.turn(longer, sampling, 10)])[0] == bench.alone(longer, sampling, 10)


@pytest.mark.parametrize(
    "sizes",
    [[1, 31, 32, 33, 150, 300], pytest.param(list(range(1, 301)), marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
def test_an_answer_is_the_same_for_any_cutting_of_the_prompt(bench: Bench, sizes: list[int]) -> None:
    draw = random.Random(3)
    prompt = (bench.ids(TEXTS[5] * 20))[:280] + [draw.randrange(100, 49152) for _ in range(20)]
    expected = bench.alone(prompt, GREEDY, 8)
    for rows in sizes:
        lane = bench.lane(tokens=512, seats=1, rows=rows)
        assert run(lane, [bench.turn(prompt, GREEDY, 8)])[0] == expected, f"cut into {rows}"


def test_an_answer_is_the_same_after_preemption(bench: Bench) -> None:
    prompts = [bench.ids(text) for text in TEXTS]
    samplings = [replace(GREEDY, temperature=0.8, seed=i, frequency_penalty=0.2) for i in range(len(prompts))]
    alone = [bench.alone(p, s, 45) for p, s in zip(prompts, samplings, strict=True)]
    lane = bench.lane(tokens=5 * BLOCK_TOKENS, seats=6)
    turns = [bench.turn(p, s, 45) for p, s in zip(prompts, samplings, strict=True)]
    for turn in turns:
        lane.add(turn)
    preemptions = 0
    while lane.busy:
        step(lane)
        preemptions += any(choice.preempted for choice in lane.waiting)
    assert preemptions > 0
    assert [answers(turn) for turn in turns] == alone


def test_choices_are_those_of_turns_of_their_own(bench: Bench) -> None:
    """Each choice has noise of its own, and choice 0 of n is what a turn with one choice gets."""
    prompt = bench.ids("".join(TEXTS))
    assert len(prompt) > 2 * BLOCK_TOKENS
    sampling = replace(GREEDY, temperature=1.3, seed=99)
    one = bench.alone(prompt, sampling, 20)[0]
    four = bench.alone(prompt, replace(sampling, n=4), 20)
    assert four[0] == one
    assert len({tuple(token for token, _, _ in choice) for choice in four}) == 4


def test_a_seed_repeats_an_answer_and_another_does_not(bench: Bench) -> None:
    prompt = bench.ids(TEXTS[5])
    drawn = [bench.alone(prompt, replace(GREEDY, temperature=1.0, seed=seed), 20) for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2]
    assert drawn[0] != drawn[1]


def test_log_probabilities_are_ordered_and_hold_the_greedy_token(bench: Bench) -> None:
    (answer,) = bench.alone(bench.ids(TEXTS[0]), replace(GREEDY, logprobs=5), 12)
    for token, logprob, top in answer:
        assert top[0] == (token, logprob)
        assert [p for _, p in top] == sorted((p for _, p in top), reverse=True)
        assert logprob <= 0


def test_a_bias_and_a_penalty_change_what_is_chosen(bench: Bench) -> None:
    prompt = bench.ids(TEXTS[2])
    (plain,) = bench.alone(prompt, GREEDY, 30)
    (biased,) = bench.alone(prompt, replace(GREEDY, logit_bias=((plain[0][0], -100.0),)), 1)
    assert biased[0][0] != plain[0][0]
    (penalised,) = bench.alone(prompt, replace(GREEDY, frequency_penalty=2.0), 30)
    most = max(sum(t == token for t, _, _ in plain) for token, _, _ in plain)
    assert max(sum(t == token for t, _, _ in penalised) for token, _, _ in penalised) < most


def test_sliding_windows_do_not_see_where_a_prompt_was_cached_or_cut(
    gemma: OpenModel, kernel_threads: _kernel.Threads
) -> None:
    """A prompt longer than gemma's window of 512: cold in one piece, from the cache, and in pieces beside others."""
    bench = Bench(gemma, kernel_threads)
    draw = random.Random(8)
    prompt = bench.ids("".join(TEXTS) * 4)[:580] + [draw.randrange(100, 200_000) for _ in range(40)]
    cold = bench.alone(prompt, GREEDY, 12)
    lane = bench.lane(tokens=4096, rows=100, stall_s=0.0)
    others = [bench.turn(bench.ids(text), GREEDY, 30) for text in TEXTS]
    first, second = bench.turn(prompt, GREEDY, 12), bench.turn(prompt, GREEDY, 12)
    assert run(lane, [*others, first])[-1] == cold
    assert run(lane, [second])[0] == cold
    assert isinstance(second.outbox[0], Started)
    assert second.outbox[0].cached_tokens == (len(prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
