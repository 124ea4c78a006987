"""The fields of a gear: every endpoint takes the same ones and refuses the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gearshift.catalog import SERVICE_TIERS
from gearshift.service import Asked
from gearshift.wire.answer import Request
from gearshift.wire.chat import read_chat
from gearshift.wire.completions import read_completion
from gearshift.wire.errors import ErrorObject, WireError
from gearshift.wire.responses import read_response

Read = Callable[[dict[str, Any]], Request]

READERS: dict[str, Read] = {
    "chat": lambda fields: read_chat(body(messages=[{"role": "user", "content": "hi"}], **fields)),
    "completions": lambda fields: read_completion(body(prompt=["hi", "ho"], **fields)),
    "responses": lambda fields: read_response(body(input="hi", **fields)),
}
PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def body(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "m", **fields})


def asked(name: str, **fields: Any) -> Asked:
    return READERS[name](fields).asked()[-1]


def refused(name: str, **fields: Any) -> ErrorObject:
    with pytest.raises(WireError) as caught:
        READERS[name](fields)
    assert caught.value.status == 400
    return caught.value.object


@pytest.mark.parametrize("name", READERS)
def test_defaults(name: str) -> None:
    for fields in ({}, dict.fromkeys(("service_tier", "gear_fallback", "drafts", "prediction"))):
        turn = asked(name, **fields)
        assert (turn.gear, turn.gear_fallback, turn.drafts, turn.prediction) == ("standard", False, "warm", "")


@pytest.mark.parametrize("name", READERS)
def test_every_field_reaches_the_turn(name: str) -> None:
    fields: dict[str, Any] = {"service_tier": "fast", "gear_fallback": True, "drafts": "off"}
    turn = asked(name, **fields, prediction={"type": "content", "content": PARTS})
    assert (turn.gear, turn.gear_fallback, turn.drafts, turn.prediction) == ("priority", True, "off", "ab")
    assert asked(name, prediction={"type": "content", "content": "c"}).prediction == "c"


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [("service_tier", "warp", SERVICE_TIERS), ("drafts", "hot", ("off", "cold", "warm"))],
)
def test_an_unknown_value_is_answered_with_the_known_ones(
    name: str, field: str, value: str, allowed: tuple[str, ...]
) -> None:
    error = refused(name, **{field: value})
    assert (error.param, error.code) == (field, "invalid_value")
    assert value in error.message
    assert all(one in error.message for one in allowed)


WRONG_PARTS: tuple[object, ...] = (5, None, [5], ["a"], [{"type": "text"}], [{"text": "a"}], [{"type": "image_url"}])
WRONG_PREDICTIONS: tuple[object, ...] = (
    "a",
    [],
    {},
    {"type": "content"},
    {"type": "text", "content": "a"},
    {"content": "a"},
    *({"type": "content", "content": parts} for parts in WRONG_PARTS),
)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("value", WRONG_PREDICTIONS)
def test_a_prediction_of_a_wrong_shape_is_refused(name: str, value: object) -> None:
    param = refused(name, prediction=value).param or ""
    assert param.partition(".")[0] == "prediction"
