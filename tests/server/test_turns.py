"""Turns over HTTP: statuses before the first byte, streams after it; clients that leave, stall or come in crowds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gearshift.caller import Usage
from gearshift.server.limits import Limits
from tests.scripted import SEED, WORDS, ScriptedEngine
from tests.server.running import Running, running

TEXT = "".join(WORDS)


def chat(prompt: str = "a b c", **fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": prompt}], **fields}


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": chat(),
    "/v1/completions": {"model": "scripted", "prompt": "a b c"},
    "/v1/responses": {"model": "scripted", "input": "a b c"},
}
PROMPT_FIELD = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/responses": "input"}


def prompting(path: str, prompt: str, **fields: Any) -> dict[str, Any]:
    value: Any = prompt if path != "/v1/chat/completions" else [{"role": "user", "content": prompt}]
    return BODIES[path] | {PROMPT_FIELD[path]: value} | fields


@pytest.fixture
def server() -> Iterator[Running]:
    with running() as started:
        yield started


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_what_fails_before_the_first_byte_is_a_status(server: Running, path: str, stream: bool) -> None:
    def post(prompt: str = "a", **fields: Any) -> httpx.Response:
        return httpx.post(server.url + path, json=prompting(path, prompt, stream=stream, **fields))

    unknown = post(model="nobody")
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"
    assert unknown.json()["error"]["param"] == "model"

    long = post("word " * 60)
    assert long.status_code == (400 if path == "/v1/completions" else 200)
    longer = post("word " * 70)
    assert longer.status_code == 400
    error = longer.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", PROMPT_FIELD[path])
    assert "70" in error["message"]
    assert "64" in error["message"]

    overloaded = post("overload")
    assert overloaded.status_code == 429
    assert overloaded.headers["retry-after"] == "2"
    assert overloaded.json()["error"]["type"] == "rate_limit_error"
    assert overloaded.json()["error"]["code"] == "overloaded"

    invalid = post("invalid-bias")
    assert invalid.status_code == 400
    assert invalid.json()["error"]["param"] == "logit_bias"

    broken = post("break-early")
    assert broken.status_code == 500
    assert broken.json()["error"]["type"] == "server_error"


@pytest.mark.parametrize("path", BODIES)
def test_the_tier_that_served_is_named(server: Running, path: str) -> None:
    for asked in (None, "auto", "default", "flex", "scale", "standard", "fast", "priority", "ultrafast"):
        served = {"fast": "priority", "priority": "priority", "ultrafast": "ultrafast"}.get(str(asked), "default")
        body = BODIES[path] | {"service_tier": asked}
        assert httpx.post(server.url + path, json=body).json()["service_tier"] == served
        events = events_of(httpx.post(server.url + path, json=body | {"stream": True}).text)
        bodies = [event.get("response", event) for event in events if event != "[DONE]"]
        assert {one["service_tier"] for one in bodies if "service_tier" in one} == {served}


@pytest.mark.parametrize("path", BODIES)
def test_the_gear_that_served_is_named_and_not_the_one_asked_for(path: str) -> None:
    with running(ScriptedEngine(only_gear="standard")) as server:
        body = BODIES[path] | {"service_tier": "ultrafast", "gear_fallback": True}
        answer = httpx.post(server.url + path, json=body).json()
        assert (answer["service_tier"], answer["usage"]["gearshift"]["gear"]) == ("default", "standard")
        assert server.settled[0][2].gear == "standard"
        full = httpx.post(server.url + path, json=body | {"gear_fallback": False})
        assert (full.status_code, full.headers["retry-after"]) == (429, "4")
        assert "ultrafast" in full.json()["error"]["message"]


@pytest.mark.parametrize("path", BODIES)
def test_the_work_of_a_turn_stands_in_its_usage(server: Running, path: str) -> None:
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    fields = {"service_tier": "ultrafast", limit: 6, "prediction": {"type": "content", "content": "Gears"}}
    body = prompting(path, "drafts", **fields)
    usage = httpx.post(server.url + path, json=body).json()["usage"]
    assert usage["gearshift"] == {"gear": "ultrafast", "steps": 3, "rows": 12, "drafted": 9, "kept": 3}
    assert server.engine.seen[0].prediction == "Gears"
    options = {} if path == "/v1/responses" else {"stream_options": {"include_usage": True}}
    events = events_of(httpx.post(server.url + path, json=body | {"stream": True} | options).text)
    last = events[-1]["response"] if path == "/v1/responses" else events[-2]
    assert last["usage"] == usage
    if path == "/v1/responses":
        return
    details = {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 6}
    assert usage["completion_tokens_details"].items() >= details.items()
    del body["prediction"]
    unpredicted = httpx.post(server.url + path, json=body).json()["usage"]["completion_tokens_details"]
    assert not any(unpredicted.values())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_running_usage_stands_in_every_chunk(server: Running, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = prompting(path, "drafts", stream=True, stream_options=options, service_tier="fast", max_tokens=6)
    *chunks, last, done = events_of(httpx.post(server.url + path, json=body).text)
    assert done == "[DONE]"
    shown = [(chunk["usage"]["completion_tokens"], chunk["usage"]["gearshift"]["steps"]) for chunk in chunks]
    roles = [(0, 0)] if path == "/v1/chat/completions" else []
    assert shown == [*roles, (2, 1), (4, 2), (6, 3), (6, 3)]
    assert [chunk["usage"]["gearshift"]["kept"] for chunk in chunks][-4:] == [1, 2, 3, 3]
    assert chunks[-1]["usage"] == last["usage"]
    assert last["choices"] == []
    only = httpx.post(server.url + path, json=body | {"stream_options": {"continuous_usage_stats": True}}).text
    assert [event["usage"] for event in events_of(only)[:-1]] == [chunk["usage"] for chunk in chunks]


def test_metrics_tell_gears_apart(server: Running) -> None:
    for tier in ("default", "ultrafast", "ultrafast"):
        httpx.post(f"{server.url}/v1/chat/completions", json=chat("drafts", service_tier=tier))
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    for line in (
        'gearshift_turns_total{ending="finished",gear="standard"} 1.0',
        'gearshift_turns_total{ending="finished",gear="ultrafast"} 2.0',
        'gearshift_drafted_tokens_total{gear="standard"} 0.0',
        'gearshift_drafted_tokens_total{gear="ultrafast"} 24.0',
        'gearshift_kept_tokens_total{gear="ultrafast"} 8.0',
        'gearshift_time_to_first_token_seconds_count{gear="standard"} 1.0',
        'gearshift_time_to_first_token_seconds_count{gear="priority"} 0.0',
        'gearshift_time_to_first_token_seconds_count{gear="ultrafast"} 2.0',
    ):
        assert line in lines, line


@pytest.mark.parametrize("path", BODIES)
def test_the_seed_is_reported(server: Running, path: str) -> None:
    assert httpx.post(server.url + path, json=BODIES[path]).json()["seed"] == SEED
    assert httpx.post(server.url + path, json=BODIES[path] | {"seed": 7}).json()["seed"] == 7


@pytest.mark.parametrize("path", BODIES)
def test_the_request_id_is_the_turn(server: Running, path: str) -> None:
    for stream in (False, True):
        answer = httpx.post(server.url + path, json=BODIES[path] | {"stream": stream})
        turn_id, _, _ = server.settled[-1]
        assert answer.headers["x-request-id"] == turn_id
        assert turn_id in answer.text


def events_of(text: str) -> list[Any]:
    blocks = [block for block in text.split("\n\n") if block]
    payloads = [line.removeprefix("data: ") for block in blocks for line in block.split("\n") if line[:6] == "data: "]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def test_a_chat_stream_in_full(server: Running) -> None:
    body = chat(stream=True, n=2, stream_options={"include_usage": True})
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, usage, done = events_of(answer.text)
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    for index in range(2):
        own = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(choice["delta"]["content"] for choice in own[1:-1]) == TEXT
        assert [choice["finish_reason"] for choice in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1] == {"index": index, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert all(chunk["usage"] is None for chunk in chunks)
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 20,
        "total_tokens": 23,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
            "reasoning_tokens": 0,
            "audio_tokens": 0,
        },
        "gearshift": {"gear": "standard", "steps": 20, "rows": 20, "drafted": 0, "kept": 0},
    }


def test_without_the_option_no_chunk_speaks_of_usage(server: Running) -> None:
    *chunks, _ = events_of(httpx.post(f"{server.url}/v1/chat/completions", json=chat(stream=True)).text)
    assert not [chunk for chunk in chunks if "usage" in chunk]


def test_several_prompts_are_numbered_in_order(server: Running) -> None:
    body: dict[str, Any] = {"model": "scripted", "prompt": ["a b", "c", "d e f"], "n": 2, "max_tokens": 2, "echo": True}
    answer = httpx.post(f"{server.url}/v1/completions", json=body).json()
    start = "".join(WORDS[:2])
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert [choice["text"] for choice in answer["choices"]] == [
        prompt + start for prompt in ("a b", "c", "d e f") for _ in range(2)
    ]
    assert answer["usage"]["prompt_tokens"] == 6
    assert answer["usage"]["completion_tokens"] == 12
    assert len(server.settled) == len({turn_id for turn_id, _, _ in server.settled}) == 3

    *chunks, done = events_of(httpx.post(f"{server.url}/v1/completions", json=body | {"stream": True}).text)
    assert done == "[DONE]"
    texts = [""] * 6
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in answer["choices"]]


def test_one_bad_prompt_of_several_ends_them_all(server: Running) -> None:
    body = {"model": "scripted", "prompt": ["forever", "overload", "forever"], "max_tokens": 1 << 30}
    assert httpx.post(f"{server.url}/v1/completions", json=body).status_code == 429
    assert server.engine.running == 0
    assert sorted(usage.ending for _, _, usage in server.settled) == ["cancelled", "cancelled", "failed"]


def test_a_stream_that_breaks_says_so(server: Running) -> None:
    last = events_of(httpx.post(f"{server.url}/v1/chat/completions", json=chat("break-late", stream=True)).text)[-1]
    assert last["error"]["type"] == "server_error"
    body = {"model": "scripted", "input": "break-late", "stream": True}
    last = events_of(httpx.post(f"{server.url}/v1/responses", json=body).text)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert last["response"]["usage"]["output_tokens"] == 3
    assert [usage.ending for _, _, usage in server.settled] == ["failed", "failed"]


def request_bytes(body: object, path: str = "/v1/chat/completions") -> bytes:
    raw = json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", f"content-length: {len(raw)}"]
    return "\r\n".join([*head, "", ""]).encode() + raw


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_vanishes_frees_its_rows_at_once(server: Running, path: str, stream: bool) -> None:
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body = prompting(path, "forever", stream=stream) | {limit: 1 << 30}
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request_bytes(body, path))
        while not server.engine.running:
            time.sleep(0.001)
        if stream:
            client.recv(100)
    server.wait_settled(1)
    assert server.engine.running == 0
    ((_, _, usage),) = server.settled
    assert usage.ending == "cancelled"
    assert usage.prompt_tokens == 1
    text = httpx.get(f"{server.url}/metrics").text
    name = path.removeprefix("/v1/").partition("/")[0]
    assert f'gearshift_requests_total{{endpoint="{name}",status="499"}} 1.0' in text


def test_a_client_that_vanishes_in_the_queue_leaves_it() -> None:
    with running(ScriptedEngine(slots=1)) as server:
        endless = request_bytes(chat("forever", stream=True))
        with socket.create_connection(("127.0.0.1", server.port)) as holder:
            holder.sendall(endless)
            while not server.engine.running:
                time.sleep(0.001)
            with socket.create_connection(("127.0.0.1", server.port)) as queued:
                queued.sendall(endless)
                while not server.engine.waiting:
                    time.sleep(0.001)
            server.wait_settled(1)
            assert server.engine.waiting == 0
            assert server.engine.running == 1
        server.wait_settled(2)
    assert server.settled[0][2] == Usage(0, 0, 0, "cancelled")


def test_a_client_that_vanishes_in_its_body_begins_no_turn(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request_bytes(chat())[:-5])
    while 'endpoint="chat",status="499"' not in httpx.get(f"{server.url}/metrics").text:
        time.sleep(0.005)
    assert not server.engine.seen
    assert not server.settled


def test_a_reader_that_stalls_is_waited_for_and_then_left() -> None:
    """The engine is not asked for more than the socket takes; a reader that never reads is given up."""
    with running(limits=Limits(stalled_s=0.3)) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(request_bytes(chat("forever", stream=True)))
        server.wait_settled(1)
        ((_, _, usage),) = server.settled
        assert usage.ending == "cancelled"
        # What the kernel's and the server's buffers hold, and not a million tokens.
        assert 0 < usage.completion_tokens < 100_000


def test_a_crowd_waits_its_turn() -> None:
    """200 connections at once on 32 slots: all are answered, in full."""

    async def crowd(url: str) -> list[str]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:
            answers = await asyncio.gather(
                *(client.post(f"{url}/v1/chat/completions", json=chat()) for _ in range(200))
            )
        return [answer.json()["choices"][0]["message"]["content"] for answer in answers]

    with running(ScriptedEngine(slots=32)) as server:
        assert asyncio.run(crowd(server.url)) == [TEXT] * 200
        assert len(server.settled) == 200


def test_a_full_queue_is_said_with_a_time_to_come_back() -> None:
    with running(ScriptedEngine(slots=1, waiting_limit=0)) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as holder:
            holder.sendall(request_bytes(chat("forever", stream=True)))
            while not server.engine.running:
                time.sleep(0.001)
            refused = httpx.post(f"{server.url}/v1/chat/completions", json=chat())
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1


def test_everything_of_one_step_leaves_in_one_write() -> None:
    """With 8 choices a step brings 8 deltas: they arrive as one chunk of the transfer encoding."""
    with (
        running(ScriptedEngine(pause_s=0.002)) as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        client.sendall(request_bytes(chat(stream=True, n=8)))
        raw = b""
        while not raw.endswith(b"0\r\n\r\n"):
            raw += client.recv(1 << 16)
    chunks: list[bytes] = []
    rest = raw.partition(b"\r\n\r\n")[2]
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    counts = [chunk.count(b"data: ") for chunk in chunks]
    # Roles, then one write per word, then reasons, then the end mark, then the empty last chunk.
    assert counts == [8] * (1 + len(WORDS)) + [8, 1, 0]


def test_bodies_have_a_limit(server: Running) -> None:
    huge = b'{"model": "' + b"x" * (33 << 20) + b'"}'
    url = f"{server.url}/v1/chat/completions"
    headers = {"content-type": "application/json"}

    def pieces() -> Iterator[bytes]:
        yield from (huge[start : start + (1 << 20)] for start in range(0, len(huge), 1 << 20))

    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request_bytes({}).replace(b"content-length: 2", b"content-length: %d" % (33 << 20)))
        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")
    with httpx.Client() as client:
        # A client that sends everything before it reads finds its answer all the same.
        for body in (pieces(), huge):
            refused = client.post(url, content=body, headers=headers)
            assert refused.status_code == 413
            assert refused.json()["error"]["code"] == "request_too_large"
        assert client.post(url, json=chat()).status_code == 200


def test_all_bodies_together_have_a_limit() -> None:
    with running(limits=Limits(bodies_bytes=3000)) as server, contextlib.ExitStack() as holders:
        url = f"{server.url}/v1/chat/completions"
        for count in (1, 2):
            holder = holders.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            holder.sendall(request_bytes(chat("forever", stream=True, user="x" * 1000)))
            while server.engine.running < count:
                time.sleep(0.001)
        refused = httpx.post(url, json=chat(user="x" * 1000))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert refused.json()["error"]["code"] == "overloaded"
        assert httpx.post(url, json=chat()).status_code == 200
        holders.close()
        server.wait_settled(3)
        assert httpx.post(url, json=chat(user="x" * 1000)).status_code == 200


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_that_waits_is_kept_alive(path: str, fails: bool) -> None:
    """Its head leaves without an event, comments follow, and an error is then an event."""
    engine = ScriptedEngine(slots=1)
    with (
        running(engine, limits=Limits(silent_s=0.01, comment_s=0.01)) as server,
        socket.create_connection(("127.0.0.1", server.port)) as holder,
        httpx.Client() as client,
    ):
        holder.sendall(request_bytes(chat("forever", stream=True)))
        while not engine.running:
            time.sleep(0.001)
        prompt = "late-failure" if fails else "a"
        with client.stream("POST", server.url + path, json=prompting(path, prompt, stream=True)) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            assert [next(lines) for _ in range(4)] == [": waiting", "", ": waiting", ""]
            holder.close()
            text = "\n".join(lines)
    events = events_of(text)
    if not fails:
        assert ": waiting" not in text.partition("data: ")[2]
        assert events[-1] == "[DONE]" if path != "/v1/responses" else events[-1]["type"] == "response.completed"
    elif path == "/v1/responses":
        (event,) = events
        assert (event["type"], event["sequence_number"]) == ("response.failed", 0)
        response = event["response"]
        assert (response["status"], response["error"]["code"], response["seed"]) == ("failed", "server_error", None)
    else:
        (event,) = events
        assert event["error"]["code"] == "engine_failure"


def test_models_are_listed_and_found_by_alias(server: Running) -> None:
    listed = httpx.get(f"{server.url}/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["scripted"]
    assert httpx.get(f"{server.url}/v1/models/other").json() == listed["data"][0]
    missing = httpx.get(f"{server.url}/v1/models/some/body")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


def test_unknown_paths_and_methods_get_error_objects(server: Running) -> None:
    for path in ("/", "/v2", "/v1/chat"):
        missing = httpx.get(server.url + path)
        assert missing.status_code == 404
        assert missing.json()["error"]["code"] == "not_found"
        assert "/v1/chat/completions" in missing.json()["error"]["message"]
    wrong = httpx.get(f"{server.url}/v1/chat/completions")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["error"]["code"] == "method_not_allowed"


def test_metrics_tell_what_happened(server: Running) -> None:
    httpx.post(f"{server.url}/v1/chat/completions", json=chat())
    text = httpx.get(f"{server.url}/metrics").text
    for line in (
        'gearshift_requests_total{endpoint="chat",status="200"} 1.0',
        'gearshift_turns_total{ending="finished",gear="standard"} 1.0',
        'gearshift_tokens_total{kind="prompt"} 3.0',
        'gearshift_tokens_total{kind="cached"} 2.0',
        'gearshift_tokens_total{kind="completion"} 10.0',
        'gearshift_time_to_first_token_seconds_count{gear="standard"} 1.0',
        f"gearshift_inter_token_seconds_count {len(WORDS) - 1}.0",
        "gearshift_step_seconds_count 2.0",
        'gearshift_step_seconds_bucket{le="0.001"} 1.0',
        'gearshift_step_rows_bucket{le="32.0"} 2.0',
        "gearshift_step_rows_sum 33.0",
        "gearshift_running 0.0",
        "gearshift_waiting 0.0",
        "gearshift_cache_tokens_total 1000.0",
    ):
        assert line in text.splitlines(), line
