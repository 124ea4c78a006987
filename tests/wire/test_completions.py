"""Legacy completion requests: the four forms of a prompt, and what is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gearshift.conversation import Prompt, RawText, RawTokens
from gearshift.wire.completions import read_completion
from gearshift.wire.errors import WireError


def body(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "m", "prompt": "once", **fields})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": ["a", [1]]}, "prompt"),
    ({"prompt": [[1], 1]}, "prompt"),
    ({"prompt": [-1]}, "prompt[0]"),
    ({"prompt": [[]]}, "prompt[0]"),
    ({"prompt": ["a"] * 65}, "prompt"),
    ({"prompt": ["a"] * 64, "n": 3}, "n"),
    ({"suffix": "end"}, "suffix"),
    ({"best_of": 2}, "best_of"),
    ({"n": 2, "best_of": 1}, "best_of"),
    ({"echo": True, "logprobs": 1}, "logprobs"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"logprobs": 21}, "logprobs"),
]


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("once", [RawText("once")]),
        ("", [RawText("")]),
        (["a", "b"], [RawText("a"), RawText("b")]),
        ([1, 2, 3], [RawTokens((1, 2, 3))]),
        ([[1], [2, 3]], [RawTokens((1,)), RawTokens((2, 3))]),
    ],
)
def test_prompts_come_in_four_forms(prompt: object, prompts: list[Prompt]) -> None:
    assert [asked.prompt for asked in read_completion(body(prompt=prompt)).asked()] == prompts


def test_the_limit_is_16_tokens_if_none_is_named() -> None:
    assert read_completion(body()).asked()[0].sampling.max_tokens == 16
    assert read_completion(body(max_tokens=3)).asked()[0].sampling.max_tokens == 3


def test_echo_and_logprobs_reach_the_engine() -> None:
    assert read_completion(body(echo=True)).asked()[0].echo
    assert read_completion(body(logprobs=0)).asked()[0].sampling.logprobs == 0
    assert read_completion(body()).asked()[0].sampling.logprobs is None


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(WireError) as caught:
        read_completion(body(**fields))
    assert caught.value.status == 400
    assert caught.value.object.param == param


def test_best_of_equal_to_n_is_no_choice_at_all() -> None:
    assert read_completion(body(n=2, best_of=2)).asked()[0].sampling.n == 2
