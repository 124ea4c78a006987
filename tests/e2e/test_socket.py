"""The WebSocket on the real model: a warm-up is found in the cache, and turns that carry only what is new are to the
token those that carry everything.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.e2e.started import MODEL, Started

INSTRUCTIONS = {"role": "developer", "content": "You are a helpful assistant. " + "Answer in one short sentence. " * 40}


def asked(socket: ClientConnection, **fields: Any) -> dict[str, Any]:
    """The response of one request."""
    socket.send(json.dumps({"type": "response.create", "model": MODEL, **fields}))
    while True:
        event: dict[str, Any] = json.loads(socket.recv())
        assert event["type"] not in ("error", "response.failed"), event
        if event["type"] in ("response.completed", "response.incomplete"):
            return event["response"]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_session_on_a_socket_is_the_same_over_http(server: Started) -> None:
    fields: dict[str, Any] = {"max_output_tokens": 40, "seed": 11, "service_tier": "ultrafast"}
    with connect(f"ws://127.0.0.1:{server.port}/v1/responses") as socket:
        last = asked(socket, input=[INSTRUCTIONS], generate=False)
        items: list[Any] = [INSTRUCTIONS]
        for question in ("What is a gear?", "And a clutch?", "Which came first?"):
            last = asked(socket, input=[user(question)], previous_response_id=last["id"], **fields)
            items.append(user(question))
            body = {"model": MODEL, "input": items, **fields, "service_tier": "default"}
            full = httpx.post(f"{server.url}/v1/responses", json=body, timeout=60).json()
            assert last["usage"]["input_tokens"] == full["usage"]["input_tokens"]
            assert last["output"][0]["content"] == full["output"][0]["content"]
            # All but the question, and what does not fill a block, was read before.
            assert last["usage"]["input_tokens_details"]["cached_tokens"] >= 200
            items.extend(last["output"])
            assert (last["service_tier"], full["service_tier"]) == ("ultrafast", "default")
