"""The official package drives the real model through every endpoint, and the answers agree with each other."""

from __future__ import annotations

import itertools
from typing import Any, cast

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseCompletedEvent, ResponseIncompleteEvent, ResponseStreamEvent

from tests.e2e.started import MODEL, Started

ENDLESS = {"ignore_eos": True}
MESSAGES: Any = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Name three colours. 请用英文。🙂"},
]
PROMPT = "def fibonacci(n):\n    "

_numbers = itertools.count()


def chat(client: OpenAI, **fields: Any) -> ChatCompletion:
    return cast(ChatCompletion, client.chat.completions.create(model=MODEL, **fields))


def chat_stream(client: OpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    return list(client.chat.completions.create(model=MODEL, stream=True, **fields))


def complete(client: OpenAI, **fields: Any) -> Completion:
    return cast(Completion, client.completions.create(model=MODEL, **fields))


def respond(client: OpenAI, **fields: Any) -> Response:
    return cast(Response, client.responses.create(model=MODEL, **fields))


def respond_stream(client: OpenAI, **fields: Any) -> list[ResponseStreamEvent]:
    return list(client.responses.create(model=MODEL, stream=True, **fields))


def fresh(text: str) -> str:
    """A text that no earlier test has put into the cache."""
    return f"[{next(_numbers)}] {text}"


def test_the_greeting_works_as_printed(server: Started) -> None:
    said = "".join(server.said)
    assert f"serves {MODEL} on {server.url}" in said
    assert "curl " in said
    assert "from openai import OpenAI" in said
    assert "packed weights" in said
    lines = [line.strip() for line in server.said]
    (target,) = [line for line in lines if line.startswith("curl ")]
    (body,) = [line for line in lines if line.startswith("-d '")]
    url = target.split()[1]
    answer = httpx.post(url, content=body[4:-1].encode(), headers={"content-type": "application/json"}, timeout=120)
    assert answer.status_code == 200
    (choice,) = answer.json()["choices"]
    assert choice.get("text") or choice["message"]["content"]


def test_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == MODEL
    assert client.models.retrieve(MODEL).id == MODEL


def test_chat_plain_and_streaming_agree(client: OpenAI) -> None:
    fields: Any = {"messages": MESSAGES, "temperature": 0, "max_tokens": 24}
    plain = chat(client, **fields)
    assert plain.usage is not None
    chunks = chat_stream(client, **fields, stream_options={"include_usage": True})
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text
    assert plain.choices[0].message.content == text
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert reasons == [plain.choices[0].finish_reason]
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == plain.usage.completion_tokens <= 24
    assert usage.prompt_tokens == plain.usage.prompt_tokens


def test_responses_plain_and_streaming_agree(client: OpenAI) -> None:
    fields: Any = {"input": "Name a fruit.", "instructions": "Be terse.", "temperature": 0}
    plain = respond(client, **fields, max_output_tokens=16)
    events = respond_stream(client, **fields, max_output_tokens=16)
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent | ResponseIncompleteEvent)
    assert plain.output_text == last.response.output_text != ""
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == plain.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert plain.usage is not None
    assert last.response.usage is not None
    assert plain.usage.output_tokens == last.response.usage.output_tokens


def test_chat_and_responses_give_the_same_answer(client: OpenAI) -> None:
    said = chat(client, messages=MESSAGES, temperature=0, max_tokens=12).choices[0].message.content
    assert respond(client, input=MESSAGES, temperature=0, max_output_tokens=12).output_text == said


def test_completions_plain_and_streaming_agree(client: OpenAI) -> None:
    fields: Any = {"prompt": PROMPT, "temperature": 0, "max_tokens": 20, "extra_body": ENDLESS}
    plain = complete(client, **fields)
    stream = client.completions.create(model=MODEL, **fields, stream=True)
    streamed = "".join(chunk.choices[0].text for chunk in stream)
    assert plain.choices[0].text == streamed != ""
    assert plain.usage is not None
    assert plain.usage.completion_tokens == 20
    assert plain.choices[0].finish_reason == "length"


def test_every_gear_gives_the_same_answer_and_is_named(client: OpenAI) -> None:
    fields: Any = {"prompt": PROMPT, "seed": 5, "max_tokens": 20}
    answers = {
        tier: complete(client, **fields, extra_body={"service_tier": tier})
        for tier in ("default", "priority", "ultrafast")
    }
    assert len({answer.choices[0].text for answer in answers.values()}) == 1
    assert {(answer.model_extra or {})["service_tier"] for answer in answers.values()} == set(answers)


def test_a_prediction_changes_nothing_but_the_work(client: OpenAI) -> None:
    fields: Any = {"messages": MESSAGES, "temperature": 0, "max_tokens": 32, "extra_body": ENDLESS | {"drafts": "cold"}}
    plain = chat(client, **fields, service_tier="default")
    said = plain.choices[0].message.content or ""
    # How many drafts pay is the scheduler's measured decision; what comes of them must add up.
    for guess in (said, "Something else entirely, twice over. " * 4):
        prediction = {"type": "content", "content": guess}
        answer = chat(client, **fields, service_tier="ultrafast", prediction=prediction)
        assert answer.choices[0].message.content == said
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 32
        details = answer.usage.completion_tokens_details
        assert details is not None
        work = (answer.usage.model_extra or {})["gearshift"]
        assert work["gear"] == "ultrafast"
        assert work["steps"] + work["kept"] == 32
        assert work["rows"] == work["steps"] + work["drafted"]
        assert details.accepted_prediction_tokens == work["kept"]
        assert details.rejected_prediction_tokens == work["drafted"] - work["kept"]


@pytest.mark.parametrize("tier", ["default", "ultrafast"])
def test_running_usage_grows_to_the_whole(client: OpenAI, tier: str) -> None:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    chunks = chat_stream(
        client, messages=MESSAGES, max_tokens=24, service_tier=tier, stream_options=options, extra_body=ENDLESS
    )
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage]
    assert len(counts) == len(chunks)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == 24
    assert chunks[-1].usage == chunks[-2].usage
    assert {chunk.service_tier for chunk in chunks} == {tier}


def test_a_drawn_seed_is_reported_and_repeats_the_answer(client: OpenAI) -> None:
    fields: Any = {"prompt": PROMPT, "max_tokens": 16, "temperature": 1.5}
    first = complete(client, **fields)
    seed = (first.model_extra or {})["seed"]
    assert complete(client, **fields, seed=seed).choices[0].text == first.choices[0].text
    assert complete(client, **fields, seed=seed + 1).choices[0].text != first.choices[0].text


def test_choices_differ_and_are_counted(client: OpenAI) -> None:
    answer = complete(client, prompt=PROMPT, n=3, seed=1, temperature=1.5, max_tokens=10, extra_body=ENDLESS)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.text for choice in answer.choices}) == 3
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 30


def test_cached_tokens_are_counted(client: OpenAI) -> None:
    prompt = fresh("one two three four five six seven eight nine ten " * 20)
    fields: Any = {"prompt": prompt, "max_tokens": 4, "temperature": 0}
    first, second = (complete(client, **fields) for _ in range(2))
    cached: list[int] = []
    for answer in (first, second):
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        cached.append(answer.usage.prompt_tokens_details.cached_tokens or 0)
        assert answer.usage.prompt_tokens > 200
    assert cached[0] == 0
    assert cached[1] > 100
    assert first.choices[0].text == second.choices[0].text


def test_logprobs_name_the_tokens_of_the_answer(client: OpenAI) -> None:
    answer = chat(client, messages=MESSAGES, temperature=0, max_tokens=8, logprobs=True, top_logprobs=5)
    choice = answer.choices[0]
    assert choice.logprobs is not None
    content = choice.logprobs.content or []
    said = b"".join(bytes(token.bytes or ()) for token in content).decode()
    assert said.startswith(choice.message.content or "")
    for token in content:
        assert len(token.top_logprobs) == 5
        assert token.logprob == token.top_logprobs[0].logprob <= 0


def test_stop_texts_end_an_answer_and_are_cut(client: OpenAI) -> None:
    whole = complete(client, prompt="1 2 3 4 5 6", temperature=0, max_tokens=24).choices[0]
    stop = whole.text[7:10]
    answer = complete(client, prompt="1 2 3 4 5 6", temperature=0, max_tokens=24, stop=stop)
    assert answer.choices[0].text == whole.text[: whole.text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"


def test_prompts_as_tokens_and_in_batches(client: OpenAI) -> None:
    answer = complete(client, prompt=[[1, 2, 3], [4, 5]], max_tokens=2, extra_body=ENDLESS)
    assert len(answer.choices) == 2
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 4)
    echoed = complete(client, prompt=PROMPT, echo=True, max_tokens=2)
    assert echoed.choices[0].text.startswith(PROMPT)


def test_what_cannot_be_is_refused_with_both_numbers(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as long:
        complete(client, prompt="word " * 9000, max_tokens=1)
    assert long.value.code == "context_length_exceeded"
    assert long.value.param == "prompt"
    assert "8192" in long.value.message
    assert "9000" in long.value.message or "9001" in long.value.message
    with pytest.raises(openai.BadRequestError) as answer:
        complete(client, prompt="word", max_tokens=100_000)
    assert answer.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as bias:
        complete(client, prompt="word", logit_bias={"49152": 1})
    assert bias.value.param == "logit_bias"
    with pytest.raises(openai.BadRequestError) as token:
        complete(client, prompt=[49152])
    assert token.value.param == "prompt"
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="gpt-9", prompt="word")
    assert missing.value.code == "model_not_found"
