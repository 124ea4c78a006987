"""The official `openai` package understands every endpoint, streaming and not, and its errors."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI
from openai.types.responses import ResponseCompletedEvent, ResponseIncompleteEvent, ResponseStreamEvent

from tests.scripted import SEED, WORDS
from tests.server.running import Running, running

TEXT = "".join(WORDS)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(keys=("key",)) as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0) as client:
        yield client


def test_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("scripted", "model", "tests")
    assert client.models.retrieve("scripted") == model


def test_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "a b c"}], n=2, logprobs=True, top_logprobs=2
    )
    assert [choice.message.content for choice in answer.choices] == [TEXT, TEXT]
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
    assert answer.choices[1].logprobs is not None
    content = answer.choices[1].logprobs.content
    assert content is not None
    assert [token.token for token in content] == list(WORDS)
    assert [bytes(token.bytes or ()) for token in content] == [word.encode() for word in WORDS]
    assert [other.token for other in content[0].top_logprobs] == ["alt0", "alt1"]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    assert answer.usage.total_tokens == 3 + 2 * (len(WORDS) + 1)
    assert (answer.usage.model_extra or {})["gearshift"]["steps"] == answer.usage.completion_tokens
    assert answer.model_extra == {"seed": SEED}


def test_a_prediction(client: OpenAI, server: Running) -> None:
    answer = client.chat.completions.create(
        model="scripted",
        messages=[{"role": "user", "content": "drafts"}],
        service_tier="priority",
        prediction={"type": "content", "content": [{"type": "text", "text": "Gears "}, {"type": "text", "text": "do"}]},
        extra_body={"drafts": "cold", "gear_fallback": True},
    )
    generation = server.engine.seen[-1]
    assert (generation.prediction, generation.drafts, generation.gear_fallback) == ("Gears do", "cold", True)
    assert answer.service_tier == "priority"
    assert answer.usage is not None
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (4, 8)


def test_chat_streaming(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="scripted",
        messages=[{"role": "user", "content": "a b c"}],
        max_completion_tokens=4,
        logprobs=True,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "".join(WORDS[:4])
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 5 + ["length"]
    assert sum(len(chunk.choices[0].logprobs.content or ()) for chunk in chunks if chunk.choices[0].logprobs) == 4
    assert last.usage is not None
    assert last.usage.completion_tokens == 4


def test_the_packages_own_stream_helper_accumulates(client: OpenAI) -> None:
    with client.chat.completions.stream(model="scripted", messages=[{"role": "user", "content": "a"}]) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == TEXT


def test_completions(client: OpenAI) -> None:
    answer = client.completions.create(model="scripted", prompt=["a b", "c"], echo=True, max_tokens=2)
    assert [choice.text for choice in answer.choices] == ["a bGears change", "cGears change"]
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    answer = client.completions.create(model="scripted", prompt=[5, 6, 7], logprobs=1, max_tokens=3)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == list(WORDS[:3])
    assert logprobs.text_offset == [0, 5, 12]
    assert logprobs.top_logprobs == [{"alt0": -1.0}] * 3


def test_completions_streaming(client: OpenAI) -> None:
    stream = client.completions.create(model="scripted", prompt="a", max_tokens=40, logprobs=0, stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == TEXT
    assert chunks[-1].choices[0].finish_reason == "stop"
    offsets = [offset for chunk in chunks if (found := chunk.choices[0].logprobs) for offset in found.text_offset or ()]
    assert offsets == [len("".join(WORDS[:index])) for index in range(len(WORDS))]


def test_responses(client: OpenAI) -> None:
    answer = client.responses.create(model="scripted", input="a b", instructions="c", metadata={"k": "v"})
    assert answer.output_text == TEXT
    assert answer.status == "completed"
    assert answer.instructions == "c"
    assert answer.metadata == {"k": "v"}
    assert answer.usage is not None
    assert answer.usage.input_tokens_details.cached_tokens == 2
    assert answer.usage.total_tokens == 3 + len(WORDS) + 1


def test_a_response_cut_by_the_limit_is_incomplete(client: OpenAI) -> None:
    answer = client.responses.create(model="scripted", input="a", max_output_tokens=2)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output_text == "Gears change"


def order(events: list[ResponseStreamEvent]) -> list[str]:
    """Event types with runs of deltas as one."""
    types = [event.type.removeprefix("response.") for event in events]
    return [one for index, one in enumerate(types) if index == 0 or one != types[index - 1]]


@pytest.mark.parametrize(("limit", "outcome"), [(None, "completed"), (3, "incomplete")])
def test_responses_streaming(client: OpenAI, limit: int | None, outcome: str) -> None:
    stream = client.responses.create(model="scripted", input="a b c", max_output_tokens=limit, stream=True)
    events = list(stream)
    assert order(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        outcome,
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(WORDS[:limit])
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text
    for event in events:
        if event.type == "response.output_text.done":
            assert event.text == text
        elif event.type == "response.output_item.done":
            assert event.item.type == "message"
            assert event.item.status == outcome
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent | ResponseIncompleteEvent)
    assert last.response.output_text == text
    assert last.response.usage is not None
    assert last.response.usage.input_tokens == 3
    items = {event.item_id for event in events if event.type == "response.output_text.delta"}
    assert items == {last.response.output[0].id}


def test_an_empty_answer_still_has_its_item(client: OpenAI) -> None:
    events = list(client.responses.create(model="scripted", input="silent", stream=True))
    assert "response.output_text.delta" not in [event.type for event in events]
    assert order(events)[2:] == [
        "output_item.added",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_the_packages_own_response_stream_accumulates(client: OpenAI) -> None:
    with client.responses.stream(model="scripted", input="a") as stream:
        final = stream.get_final_response()
    assert final.output_text == TEXT


def test_errors_are_the_packages_own(client: OpenAI, server: Running) -> None:
    chat = client.chat.completions
    with pytest.raises(openai.NotFoundError) as missing:
        chat.create(model="nobody", messages=[{"role": "user", "content": "a"}])
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as wrong:
        chat.create(model="scripted", messages=[{"role": "user", "content": "a"}], temperature=9)
    assert (wrong.value.param, wrong.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.RateLimitError) as busy:
        chat.create(model="scripted", messages=[{"role": "user", "content": "overload"}])
    assert busy.value.status_code == 429
    assert busy.value.response.headers["retry-after"] == "2"
    with pytest.raises(openai.APIError, match="The engine failed"):
        list(chat.create(model="scripted", messages=[{"role": "user", "content": "break-late"}], stream=True))
    with OpenAI(base_url=f"{server.url}/v1", api_key="no", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as refused:
            stranger.models.list()
        assert refused.value.code == "invalid_api_key"


def test_a_failed_stream_of_responses_ends_with_its_failure(client: OpenAI) -> None:
    last = list(client.responses.create(model="scripted", input="break-late", stream=True))[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "server_error"
