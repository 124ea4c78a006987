"""Which constraints are refused, and that none of them can take long."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gearshift.engine.local.constraints import Grammars
from gearshift.engine.local.constraints.grammars import MOST_CHARACTERS
from gearshift.engine.protocol import Constraint, Grammar, InvalidGeneration, JsonSchema
from tests.engine.local.stand_in import PIECES, tokenize

BYTES = Grammars(
    [b"", *(bytes([byte]) for byte in range(255))], frozenset([0]), lambda text: [1 + b for b in text.encode()]
)


def schema(value: Any, strict: bool = True) -> JsonSchema:
    return JsonSchema(json.dumps(value), strict)


@pytest.mark.parametrize(
    ("constraint", "says"),
    [
        (schema({"not": {"type": "string"}}), 'Unimplemented keys: ["not"]'),
        (schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (schema({"type": "string", "format": "colour"}), "Unknown format: colour"),
        (schema({"type": "text"}), "Invalid type: text"),
        (schema({"type": "integer", "minimum": 3, "maximum": 2}), "minimum (3) is greater than maximum (2)"),
        (schema({"not": {}, "x-guidance": {"lenient": True}}), "not"),
        (schema([]), "not a JSON object"),
        (JsonSchema("{"), "not JSON"),
        (JsonSchema("[" * 100_000), "not JSON"),
        (schema({"enum": ["x" * MOST_CHARACTERS]}), f"at most {MOST_CHARACTERS}"),
        (Grammar("start: nothing"), "cannot be served"),
        (Grammar("start: /(/"), "cannot be served"),
    ],
)
def test_what_cannot_be_served_is_named(constraint: Constraint, says: str) -> None:
    with pytest.raises(InvalidGeneration, match=r"cannot be served|at most") as error:
        BYTES.compile(constraint)
    assert says in str(error.value)
    assert error.value.param == "constraint"


def test_a_lenient_schema_leaves_out_what_is_not_supported() -> None:
    matcher = BYTES.compile(schema({"type": "object", "not": {"required": ["a"]}, "properties": {}}, strict=False))
    assert matcher.fitting([1 + byte for byte in b'{"a": 1}']) == 8


def test_an_object_may_have_many_optional_properties() -> None:
    matcher = BYTES.compile(schema({"properties": {f"p{i}": {"type": "null"} for i in range(1500)}, "type": "object"}))
    text = [1 + byte for byte in b'{"p7": null, "p1499": null}']
    for token in text:
        assert matcher.fitting([token]) == 1
        matcher.masks(())
        matcher.advance(token)
    assert matcher.complete


def test_whitespace_cannot_go_on_for_ever() -> None:
    matcher = BYTES.compile(schema({"type": "object"}))
    indented = [1 + byte for byte in b"{\n" + b" " * 32 + b'"a": 1}']
    assert matcher.fitting(indented) == len(indented)
    assert matcher.fitting([1 + byte for byte in b"{\n" + b" " * 100]) == 34


def test_a_vocabulary_without_an_end_cannot_be_constrained() -> None:
    with pytest.raises(InvalidGeneration, match="no token that ends a text"):
        Grammars(PIECES, frozenset(), tokenize).compile(Grammar('start: "a"'))


def test_a_schema_is_compiled_while_the_event_loop_goes_on() -> None:
    async def main() -> int:
        task = asyncio.create_task(BYTES.compiled(schema({"enum": [f"value {i}" for i in range(4000)]})))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert not (await task).problem
        return turns

    assert asyncio.run(main()) > 1
