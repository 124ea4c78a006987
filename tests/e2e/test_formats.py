"""The official package asks the real model for answers in a format, over chat and responses."""

from __future__ import annotations

import json
from typing import Any, cast

import jsonschema
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion

from tests.e2e.started import MODEL

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "size": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["colour", "size"],
    "additionalProperties": False,
}
ASK: Any = [{"role": "user", "content": "Which colour, and how large?"}]


def chat(client: OpenAI, format: Any, **fields: Any) -> ChatCompletion:
    create = client.chat.completions.create
    return cast(ChatCompletion, create(model=MODEL, messages=ASK, response_format=format, **fields))


@pytest.mark.parametrize("tier", ["default", "priority", "ultrafast"])
def test_chat_fits_a_schema_in_every_gear(client: OpenAI, tier: str) -> None:
    asked_for = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
    answer = chat(client, asked_for, service_tier=tier, seed=3, temperature=1.5)
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    text = choice.message.content or ""
    jsonschema.validate(json.loads(text), SCHEMA)
    assert text == chat(client, asked_for, seed=3, temperature=1.5).choices[0].message.content


def test_a_response_fits_a_schema_and_tells_its_format(client: OpenAI) -> None:
    asked_for: Any = {"type": "json_schema", "name": "thing", "schema": SCHEMA, "strict": True}
    response = client.responses.create(model=MODEL, input="Which?", text={"format": asked_for})
    assert response.status == "completed"
    jsonschema.validate(json.loads(response.output_text), SCHEMA)
    assert response.text is not None and response.text.format is not None
    assert response.text.format.type == "json_schema"
    assert response.text.format.schema_ == SCHEMA


def test_a_schema_that_is_not_served_is_named(client: OpenAI) -> None:
    wrong: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}, "strict": True}}
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, wrong)
    assert caught.value.param == "response_format"
    assert '"not"' in str(caught.value)


def test_a_json_object_in_pieces_is_the_whole_one(client: OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": ASK, "response_format": {"type": "json_object"}, "seed": 2}
    chunks = list(client.chat.completions.create(stream=True, max_tokens=40, **asked))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    whole = chat(client, asked["response_format"], seed=2, max_tokens=40)
    assert whole.choices[0].message.content == text
    assert text.lstrip().startswith("{")
