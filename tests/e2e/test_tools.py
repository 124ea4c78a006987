"""The official package offers tools to the real model: calls that are forced, in pieces and whole, cut and taken up."""

from __future__ import annotations

import json
from typing import Any, cast

import jsonschema
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tests.e2e.started import MODEL

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "description": "The weather now.", "parameters": PARAMETERS, "strict": True}
GRAMMAR = 'start: "move " NUMBER " " ("up" | "down")\nNUMBER: /[1-9][0-9]?/\n'
CHAT_TOOLS: Any = [
    {"type": "function", "function": WEATHER},
    {
        "type": "custom",
        "custom": {
            "name": "robot",
            "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": GRAMMAR}},
        },
    },
]
TOOLS: Any = [
    {"type": "function", **WEATHER},
    {"type": "custom", "name": "robot", "format": {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}},
]
ASK: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


def chat(client: OpenAI, **fields: Any) -> ChatCompletion:
    asked: dict[str, Any] = {"messages": ASK, "tools": CHAT_TOOLS, "temperature": 1.5} | fields
    return cast(ChatCompletion, client.chat.completions.create(model=MODEL, **asked))


def respond(client: OpenAI, **fields: Any) -> Response:
    asked: dict[str, Any] = {"input": ASK, "tools": TOOLS, "temperature": 1.5} | fields
    return cast(Response, client.responses.create(model=MODEL, **asked))


@pytest.mark.parametrize("tier", ["default", "priority", "ultrafast"])
def test_a_named_function_is_called_with_arguments_that_fit(client: OpenAI, tier: str) -> None:
    answer = chat(client, tool_choice=NAMED, service_tier=tier, seed=5)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "get_weather"
    jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
    (again,) = chat(client, tool_choice=NAMED, seed=5).choices[0].message.tool_calls or []
    assert again.type == "function"
    assert again.function == call.function


def test_a_required_call_in_pieces_is_the_whole_one(client: OpenAI) -> None:
    for seed in range(4):
        asked: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False, "seed": seed}
        (whole,) = chat(client, **asked).choices[0].message.tool_calls or []
        stream = client.chat.completions.create(
            model=MODEL, messages=ASK, tools=CHAT_TOOLS, temperature=1.5, stream=True, **asked
        )
        chunks = list(cast(Any, stream))
        (piece,) = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
        assert piece.index == 0
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        if whole.type == "function":
            assert (piece.function.name, piece.function.arguments) == (whole.function.name, whole.function.arguments)
        else:
            assert piece.custom["input"] == whole.custom.input
            assert whole.custom.input.startswith("move ")


def test_responses_bring_calls_as_items_with_their_events(client: OpenAI) -> None:
    kinds: set[str] = set()
    for seed in range(6):
        events = list(
            cast(
                Any,
                client.responses.create(
                    model=MODEL,
                    input=ASK,
                    tools=TOOLS,
                    tool_choice="required",
                    stream=True,
                    temperature=1.5,
                    extra_body={"seed": seed},
                    parallel_tool_calls=False,
                ),
            )
        )
        response = events[-1].response
        assert response.status == "completed"
        (item,) = response.output
        kinds.add(item.type)
        done = next(event for event in events if event.type == "response.output_item.done")
        assert done.item == item
        assert [event.sequence_number for event in events] == list(range(len(events)))
        if item.type == "function_call":
            jsonschema.validate(json.loads(item.arguments), PARAMETERS)
            assert any(event.type == "response.function_call_arguments.done" for event in events)
        else:
            assert item.type == "custom_tool_call"
            assert any(event.type == "response.custom_tool_call_input.done" for event in events)
        assert response.tools[0].name == "get_weather"
        assert response.tool_choice == "required"
        plain = respond(client, tool_choice="required", parallel_tool_calls=False, extra_body={"seed": seed})
        assert plain.output[0].model_dump(exclude={"id", "call_id"}) == item.model_dump(exclude={"id", "call_id"})
    assert kinds


def test_a_cut_call_is_incomplete_in_both_forms_and_the_conversation_goes_on(client: OpenAI) -> None:
    choice: Any = {"type": "function", "name": "get_weather"}
    cut = respond(client, tool_choice=choice, max_output_tokens=22)
    assert cut.status == "incomplete"
    (item,) = cut.output
    assert item.type == "function_call"
    assert item.status == "incomplete"
    events = list(
        cast(
            Any,
            client.responses.create(
                model=MODEL, input=ASK, tools=TOOLS, tool_choice=choice, max_output_tokens=22, stream=True
            ),
        )
    )
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output[0].status == "incomplete"
    history = [*ASK, item.model_dump(), {"type": "function_call_output", "call_id": item.call_id, "output": "cut"}]
    assert respond(client, input=history, tool_choice="none", max_output_tokens=5).usage

    (first,) = chat(client, tool_choice=NAMED, max_tokens=22).choices
    assert first.finish_reason == "length"
    (call,) = first.message.tool_calls or []
    messages = [*ASK, first.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "cut"}]
    (second,) = chat(client, messages=messages, tool_choice=NAMED).choices
    assert second.finish_reason == "tool_calls"


def test_with_tools_on_offer_text_is_still_text(client: OpenAI) -> None:
    (choice,) = chat(client, max_tokens=20, temperature=0).choices
    assert choice.message.content
    assert not choice.message.tool_calls


def test_a_tool_that_cannot_be_served_is_named(client: OpenAI) -> None:
    wrong: Any = {"type": "function", "function": {"name": "bad", "parameters": {"not": {}}, "strict": True}}
    with pytest.raises(openai.BadRequestError, match="bad") as caught:
        chat(client, tools=[wrong])
    assert caught.value.param == "tools"
