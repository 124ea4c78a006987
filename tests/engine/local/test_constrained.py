"""Answers of the real model under a grammar: what is complete parses and fits, and is the same in every gear, with
drafts on or off, alone or in company."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

from gearshift import _kernel
from gearshift.catalog import GearName
from gearshift.engine.local.constraints import Grammars
from gearshift.engine.local.lane import Lane, LaneLimits
from gearshift.engine.local.load import OpenModel, forward_of
from gearshift.engine.local.scheduler import blocks_for
from gearshift.engine.local.sequence import Turn
from gearshift.engine.protocol import Drafts, JsonObject, JsonSchema, Sampling
from tests.engine.local.constraints.random_schemas import random_schema
from tests.engine.local.stand_in import told, turn_of

PROMPTS = ["The record in JSON:\n", 'data = {"name": "x", "count": 12, "tags": ["a", "b"]}\ndata = ', "今天天气很好 "]


@dataclass(frozen=True)
class Case:
    """A schema with what is asked under it."""

    schema: dict[str, Any]
    prompt: str
    seed: int
    limit: int


def cases(count: int, seed: int) -> list[Case]:
    draw = random.Random(seed)
    return [
        Case(random_schema(draw), draw.choice(PROMPTS), draw.randrange(2**53), draw.choice([60, 150]))
        for _ in range(count)
    ]


class Bench:
    """Runs cases on the real model."""

    def __init__(self, model: OpenModel, threads: _kernel.Threads) -> None:
        vocabulary = model.vocabulary()
        self.model = model
        self.threads = threads
        self.vocabulary = vocabulary
        self.grammars = Grammars(vocabulary.pieces, vocabulary.ends, model.renderer.encode_behind)

    def lane(self, seats: int) -> Lane:
        cache = _kernel.Cache(self.model.kernel, blocks_for(seats * 512))
        limits = LaneLimits(seats, blocks_for(seats * 512), 512, 256, stall_s=0.1)
        return Lane("smollm2", forward_of(self.model.kernel, cache, self.threads), self.vocabulary, limits)

    def turn(self, case: Case, gear: GearName, drafts: Drafts) -> Turn:
        turn = turn_of(
            self.model.tokenizer.encode(case.prompt),
            Sampling(temperature=1.5, seed=case.seed),
            case.limit,
            gear,
            vocabulary=self.vocabulary,
            matcher=self.grammars.compile(JsonSchema(json.dumps(case.schema))),
        )
        turn.drafts = drafts
        return turn

    def run(self, turns: Sequence[Turn], seats: int) -> None:
        lane = self.lane(seats)
        for turn in turns:
            lane.add(turn)
        while lane.busy:
            lane.commit(lane.run(lane.schedule()))


@pytest.fixture(scope="module")
def bench(smollm2: OpenModel, kernel_threads: _kernel.Threads) -> Bench:
    return Bench(smollm2, kernel_threads)


@pytest.mark.parametrize("count", [24, pytest.param(600, marks=[pytest.mark.long, pytest.mark.timeout(7200)])])
def test_complete_answers_fit_their_schema_and_are_the_same_in_every_gear(bench: Bench, count: int) -> None:
    asked = cases(count, seed=count)
    plain = [bench.turn(case, "standard", "off") for case in asked]
    bench.run(plain, seats=16)
    draw = random.Random(1)
    gears: Sequence[GearName] = ("standard", "priority", "ultrafast")
    fast = [bench.turn(case, draw.choice(gears), draw.choice(["cold", "warm"])) for case in asked]
    bench.run(fast, seats=5)
    complete, kept = 0, 0
    for case, one, other in zip(asked, plain, fast, strict=True):
        assert one.failure is None and other.failure is None
        first, second = told(one.outbox), told(other.outbox)
        assert second.tokens == first.tokens
        assert (second.texts, second.ends[0].reason) == (first.texts, first.ends[0].reason)
        kept += second.ends[0].work.kept
        if first.ends[0].reason == "stop":
            complete += 1
            jsonschema.validate(json.loads(first.texts[0]), case.schema)
    assert complete > count / 2
    assert kept > 0


def test_a_json_object_parses_and_is_the_same_with_drafts(bench: Bench) -> None:
    found: set[str] = set()
    for seed in range(6):
        texts: list[str] = []
        case = Case({}, PROMPTS[1], seed, 60)
        for turn in (bench.turn(case, "standard", "off"), bench.turn(case, "ultrafast", "cold")):
            turn.matcher = bench.grammars.compile(JsonObject())
            bench.run([turn], seats=1)
            answer = told(turn.outbox)
            texts.append(answer.texts[0])
            if answer.ends[0].reason == "stop":
                assert isinstance(json.loads(texts[0]), dict)
                found.add(texts[0])
        assert texts[0] == texts[1]
    assert found


def test_what_the_grammar_forces_is_drafted(bench: Bench) -> None:
    """Nothing could be copied here: the drafts are the grammar's own."""
    case = Case({"const": {"forced": ["by", "the", "grammar", "alone"], "choice": None}}, "x", 1, 100)
    turn = bench.turn(case, "ultrafast", "cold")
    bench.run([turn], seats=1)
    answer = told(turn.outbox)
    assert json.loads(answer.texts[0]) == case.schema["const"]
    assert answer.ends[0].work.kept > len(answer.tokens[0]) / 4
