"""Matchers over the real vocabulary: masks depend on the answer's tokens alone, and a draft leaves no trace."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from gearshift.engine.local.constraints import Grammars, Mask, Matcher
from gearshift.engine.local.load import OpenModel
from gearshift.engine.protocol import Grammar, JsonObject, JsonSchema
from tests.engine.local.constraints.random_schemas import random_schema


@pytest.fixture(scope="module")
def grammars(smollm2: OpenModel) -> Grammars:
    vocabulary = smollm2.vocabulary()
    return Grammars(vocabulary.pieces, vocabulary.ends, smollm2.renderer.encode_behind)


def mask_of(matcher: Matcher) -> Mask:
    return matcher.masks(())[0]


def allowed(mask: Mask) -> list[int]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def walked(matcher: Matcher, tokens: list[int]) -> Matcher:
    """A fresh matcher after these tokens."""
    fresh = matcher.copy()
    for token in tokens:
        fresh.advance(token)
    return fresh


def test_masks_are_those_of_a_fresh_matcher_whatever_was_drafted(grammars: Grammars, smollm2: OpenModel) -> None:
    draw = random.Random(5)
    constraints = [JsonSchema(json.dumps(random_schema(draw))) for _ in range(40)]
    ends = smollm2.vocabulary().ends
    for constraint in [JsonObject(), Grammar('start: "begin " /[a-z]+/ (" and" | " or") " end"'), *constraints]:
        start = grammars.compile(constraint)
        matcher, tokens = start.copy(), list[int]()
        for _ in range(25):
            if matcher.complete:
                break
            mask = mask_of(matcher)
            assert (mask == mask_of(walked(start, tokens))).all()
            draft: list[int] = []
            for _ in range(draw.randrange(10)):
                ahead = walked(matcher, draft)
                choices = [] if ahead.complete else [token for token in allowed(mask_of(ahead)) if token not in ends]
                if not choices:
                    break
                draft.append(draw.choice(choices))
            assert matcher.fitting([*draft, *sorted(ends)]) == len(draft)
            masks = matcher.masks(draft)
            assert len(masks) == len(draft) + 1
            for at, found in enumerate(masks):
                assert (found == mask_of(walked(start, [*tokens, *draft[:at]]))).all()
            forced = list(matcher.forced())
            assert matcher.fitting(forced) == len(forced)
            assert (mask_of(matcher) == mask).all()
            choices = [token for token in allowed(mask) if token not in ends]
            if not choices:
                break
            tokens.append(draw.choice(choices))
            matcher.advance(tokens[-1])
            assert not matcher.problem


def test_a_draft_is_cut_at_the_first_token_that_is_forbidden(grammars: Grammars, smollm2: OpenModel) -> None:
    matcher = grammars.compile(JsonSchema('{"type": "array", "items": {"type": "integer"}}'))
    right = list(smollm2.renderer.encode_behind("[1, 2, 3]"))
    wrong = list(smollm2.renderer.encode_behind('"'))
    assert matcher.fitting(right) == len(right)
    assert matcher.fitting([*right[:3], *wrong, *right[3:]]) == 3
    assert matcher.fitting(wrong) == 0
    assert matcher.fitting([]) == 0


def test_an_end_is_allowed_only_where_the_grammar_is_satisfied(grammars: Grammars, smollm2: OpenModel) -> None:
    ends = smollm2.vocabulary().ends
    matcher = grammars.compile(JsonSchema('{"type": "integer"}'))
    assert not ends & set(allowed(mask_of(matcher)))
    for token in smollm2.renderer.encode_behind("12"):
        matcher.advance(token)
    assert ends <= set(allowed(mask_of(matcher)))
    assert not matcher.complete  # more digits may follow
    array = grammars.compile(JsonSchema('{"const": [1]}'))
    for token in smollm2.renderer.encode_behind("[1]"):
        assert not array.complete
        array.advance(token)
    assert array.complete


def test_a_token_that_does_not_fit_is_a_problem_and_allows_nothing_more(grammars: Grammars) -> None:
    matcher = grammars.compile(JsonObject())
    matcher.advance(0)
    assert matcher.problem
    assert not matcher.complete
    assert not mask_of(matcher).any()
