"""Turns over a WebSocket: the events of the HTTP stream, errors with a status, warm-ups, turns that go on from the one
before, interruptions, peers that vanish or do not read, and the end of connections.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gearshift.conversation import Conversation, Message
from gearshift.server.limits import LIMITS, Limits
from tests.scripted import WORDS, ScriptedEngine
from tests.server.running import Running, running
from tests.server.talking import Event, Talk, talking

TEXT = "".join(WORDS)


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def text_of(events: list[Event]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def said(server: Running, turn: int = -1) -> tuple[tuple[str, str], ...]:
    prompt = server.engine.seen[turn].prompt
    assert isinstance(prompt, Conversation)
    return tuple((item.role, item.text) for item in prompt.items if isinstance(item, Message))


def without_ids(value: Any) -> Any:
    """An event without what differs from turn to turn."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        return {key: without_ids(one) for key, one in fields.items() if key not in ("id", "item_id")}
    if isinstance(value, list):
        return [without_ids(one) for one in cast(list[Any], value)]
    return None if isinstance(value, int) and value > 1_700_000_000 else value


@pytest.fixture
def server() -> Iterator[Running]:
    with running() as started:
        yield started


@pytest.fixture
def talk(server: Running) -> Iterator[Talk]:
    with talking(server) as talk:
        yield talk


def test_events_are_those_of_the_http_stream(server: Running, talk: Talk) -> None:
    fields: dict[str, Any] = {"seed": 5, "service_tier": "fast", "metadata": {"a": "b"}, "instructions": "be\n\nbrief"}
    over_socket = talk.ask("a\n\nb", stream=True, **fields)
    body = {"model": "scripted", "input": "a\n\nb", "stream": True, **fields}
    stream = httpx.post(f"{server.url}/v1/responses", json=body).text
    over_http = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
    assert without_ids(over_socket) == without_ids(over_http)
    assert text_of(over_socket) == TEXT
    assert over_socket[-1]["response"]["service_tier"] == "priority"


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"model": "nobody"}, 404, "model_not_found", "model"),
        ({"input": "overload"}, 429, "overloaded", None),
        ({"input": "break-early"}, 500, "engine_failure", None),
        ({"input": "word " * 70}, 400, "context_length_exceeded", "input"),
        ({"input": []}, 400, "invalid_value", "input"),
        ({"input": 5}, 400, "invalid_type", "input"),
        ({"service_tier": "warp"}, 400, "invalid_value", "service_tier"),
        ({"previous_response_id": "resp_x"}, 400, "previous_response_not_found", "previous_response_id"),
        ({"model": "nobody", "generate": False}, 404, "model_not_found", "model"),
    ],
)
def test_a_refusal_is_a_frame_with_a_status_and_the_connection_goes_on(
    talk: Talk, fields: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    talk.send(**{"model": "scripted", "input": "a", **fields})
    (error,) = talk.until("error")
    assert (error["status"], error["error"]["code"], error["error"]["param"]) == (status, code, param)
    assert error["headers"] == ({"retry-after": "2"} if status == 429 else {})
    assert text_of(talk.ask()) == TEXT


@pytest.mark.parametrize(
    "frame", ["", "x", "[]", "{}", '{"type":5}', '{"type":"session.update"}', "[" * 100_000, b"{}"]
)
def test_a_broken_frame_is_refused_and_the_connection_goes_on(talk: Talk, frame: str | bytes) -> None:
    talk.socket.send(frame)
    assert talk.event()["status"] == 400
    assert text_of(talk.ask()) == TEXT


def test_what_fails_after_its_beginning_fails_by_its_own_event(server: Running, talk: Talk) -> None:
    events = talk.ask("break-late")
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["id"] == events[0]["response"]["id"]
    assert text_of(talk.ask()) == TEXT
    server.wait_settled(2)
    assert [usage.ending for _, _, usage in server.settled] == ["failed", "finished"]


def test_a_warm_up_is_answered_at_once_and_reads_ahead(server: Running, talk: Talk) -> None:
    instructions = {"role": "developer", "content": "be brief"}
    created, *_, completed = events = talk.ask([instructions], generate=False, service_tier="ultrafast")
    assert [event["type"].rpartition(".")[2] for event in events] == ["created", "in_progress", "completed"]
    assert completed["response"]["id"] == created["response"]["id"]
    assert (completed["response"]["output"], completed["response"]["usage"]["total_tokens"]) == ([], 0)
    assert completed["response"]["service_tier"] == "ultrafast"
    server.wait_settled(1)
    (ahead,) = server.engine.seen
    assert (ahead.gear, ahead.gear_fallback) == ("ultrafast", True)
    assert (ahead.sampling.max_tokens, ahead.drafts) == (1, "off")
    assert said(server) == (("developer", "be brief"),)
    last = talk.ask([user("hi")], previous_response_id=created["response"]["id"])[-1]
    assert said(server) == (("developer", "be brief"), ("user", "hi"))
    assert last["response"]["previous_response_id"] == created["response"]["id"]
    assert len(server.settled) == 2


def test_an_empty_warm_up_reads_nothing(server: Running, talk: Talk) -> None:
    warm = talk.ask([], generate=False)[-1]["response"]["id"]
    assert text_of(talk.ask("hi", previous_response_id=warm)) == TEXT
    assert said(server) == (("user", "hi"),)
    assert len(server.engine.seen) == 1


def test_a_turn_waits_for_its_warm_up_but_not_forever() -> None:
    """Then the reading stops, and the rest is the turn's own business. Each is settled once."""
    with running(ScriptedEngine(pause_s=30.0)) as server, talking(server) as talk:
        warm = talk.ask("forever", generate=False)[-1]["response"]["id"]
        while not server.engine.seen:
            time.sleep(0.005)
        server.engine.pause_s = 0.0
        assert text_of(talk.ask("b", previous_response_id=warm, max_output_tokens=9)) == TEXT
        server.wait_settled(2)
        assert [usage.ending for _, _, usage in server.settled] == ["cancelled", "finished"]


def test_later_turns_carry_only_what_is_new(server: Running, talk: Talk) -> None:
    first = talk.ask([user("one")])[-1]["response"]["id"]
    second = talk.ask([user("two")], previous_response_id=first)[-1]["response"]["id"]
    talk.ask([], previous_response_id=second)
    history = (("user", "one"), ("assistant", TEXT), ("user", "two"), ("assistant", TEXT))
    assert said(server) == history
    # An earlier one may be gone on from again, and nothing of the other way is in it.
    talk.ask([user("three")], previous_response_id=first)
    assert said(server) == (*history[:2], ("user", "three"))
    # In full over HTTP it is the same conversation.
    full = [user("one"), {"role": "assistant", "content": TEXT}, user("two"), {"role": "assistant", "content": TEXT}]
    httpx.post(f"{server.url}/v1/responses", json={"model": "scripted", "input": full})
    assert said(server) == history


def test_connections_know_nothing_of_each_other(server: Running, talk: Talk) -> None:
    mine = talk.ask([user("one")])[-1]["response"]["id"]
    with talking(server) as other:
        assert other.ask("x", previous_response_id=mine)[-1]["error"]["code"] == "previous_response_not_found"
        theirs = other.ask([user("two")])[-1]["response"]["id"]
        assert theirs != mine
    assert talk.ask("x", previous_response_id=mine)[-1]["type"] == "response.completed"
    assert said(server)[0] == ("user", "one")


def test_a_stored_response_is_found_on_any_connection_of_its_caller() -> None:
    with running(keys=("a-key", "b-key")) as server:
        with talking(server, "a-key") as talk:
            last = talk.ask([user("one")], store=True)[-1]["response"]
        url = f"{server.url}/v1/responses"
        mine, theirs = ({"authorization": f"Bearer {key}"} for key in ("a-key", "b-key"))
        assert httpx.get(f"{url}/{last['id']}", headers=mine).json() == last
        body = {"model": "scripted", "input": "two", "previous_response_id": last["id"]}
        assert httpx.post(url, json=body, headers=theirs).json()["error"]["code"] == "previous_response_not_found"
        assert httpx.get(f"{url}/{last['id']}", headers=theirs).status_code == 404
        assert httpx.delete(f"{url}/{last['id']}", headers=theirs).status_code == 404
        assert httpx.get(f"{url}/{last['id']}").status_code == 401
        assert httpx.post(url, json=body, headers=mine).status_code == 200
        assert said(server) == (("user", "one"), ("assistant", TEXT), ("user", "two"))
        assert httpx.delete(f"{url}/{last['id']}", headers=mine).json()["deleted"] is True
        assert httpx.get(f"{url}/{last['id']}", headers=mine).status_code == 404


def test_a_session_goes_on_over_http_after_its_socket_is_lost() -> None:
    """Nothing is lost or said twice, and every turn is settled once."""
    with running(ScriptedEngine(pause_s=0.02, window=1 << 20)) as server:
        with talking(server) as talk:
            whole = talk.ask([user("one")])
            talk.create([user("two"), user("forever")], previous_response_id=whole[-1]["response"]["id"])
            talk.until("response.output_text.delta")
        server.wait_settled(2)
        answer = {"role": "assistant", "content": text_of(whole)}
        body = {"model": "scripted", "input": [user("one"), answer, user("two")], "stream": True}
        assert httpx.post(f"{server.url}/v1/responses", json=body).status_code == 200
        assert said(server) == (("user", "one"), ("assistant", TEXT), ("user", "two"))
        server.wait_settled(3)
        assert [usage.ending for _, _, usage in server.settled] == ["finished", "cancelled", "finished"]
        assert len({turn_id for turn_id, _, _ in server.settled}) == 3


def test_a_peer_that_vanishes_ends_its_turn(server: Running) -> None:
    server.engine.pause_s = 0.01
    with talking(server) as talk:
        talk.create("forever")
        talk.until("response.output_text.delta")
        # No farewell, as a killed process leaves.
        talk.socket.socket.shutdown(socket.SHUT_RDWR)
        server.wait_settled(1)
        assert server.settled[0][2].ending == "cancelled"
        assert server.engine.running == 0


def test_an_interruption_discards_what_was_begun(server: Running, talk: Talk) -> None:
    server.engine.pause_s = 0.01
    first = talk.ask([user("one")])[-1]["response"]["id"]
    talk.create([user("forever")], previous_response_id=first)
    running_id = talk.until("response.output_text.delta")[0]["response"]["id"]
    talk.send("response.interrupt", response_id="resp_other", mode="discard_partial_items")
    talk.send("response.interrupt", response_id=running_id, mode="discard_partial_items")
    last = talk.until("response.incomplete")[-1]["response"]
    assert last["id"] == running_id
    assert (last["incomplete_details"], last["end_turn"]) == ({"reason": "interrupted"}, False)
    assert last["output"] == []
    assert last["usage"]["output_tokens"] > 0
    talk.ask([user("two")], previous_response_id=running_id, max_output_tokens=3)
    assert said(server) == (("user", "one"), ("assistant", TEXT), ("user", "forever"), ("user", "two"))
    # Too late, or for something unknown: nothing happens.
    talk.send("response.interrupt", response_id=running_id)
    talk.send("response.interrupt")
    talk.send("response.processed", response_id=running_id)
    assert text_of(talk.ask()) == TEXT
    server.wait_settled(4)
    assert [usage.ending for _, _, usage in server.settled] == ["finished", "cancelled", "finished", "finished"]


def test_a_waiting_turn_is_kept_alive() -> None:
    engine = ScriptedEngine(slots=1, pause_s=0.01)
    with running(engine, limits=Limits(comment_s=0.05)) as server, talking(server) as first, talking(server) as second:
        first.create("forever")
        first.until("response.output_text.delta")
        second.create()
        assert [event["type"] for event in (second.event(), second.event())] == ["keepalive", "keepalive"]
        first.socket.close()
        assert text_of(second.until("response.completed")) == TEXT


def test_requests_on_one_connection_take_turns(server: Running, talk: Talk) -> None:
    server.engine.pause_s = 0.01
    for _ in range(3):
        talk.create()
    for _ in range(3):
        assert text_of(talk.until("response.completed")) == TEXT
    server.wait_settled(3)


def test_too_many_waiting_requests_are_refused() -> None:
    with running(limits=Limits(frames=1)) as server, talking(server) as talk:
        server.engine.pause_s = 0.01
        talk.create("forever")
        talk.until("response.created")
        talk.create()
        talk.create()
        error = talk.until("error")[-1]
        assert (error["status"], error["error"]["code"]) == (429, "too_many_requests")


def test_frames_and_bodies_have_one_bound() -> None:
    with running(limits=Limits(body_bytes=2000, bodies_bytes=1500)) as server, talking(server) as talk:
        assert talk.ask("x" * 1600)[-1]["status"] == 503
        assert talk.ask("x" * 2100)[-1]["status"] == 413
        assert text_of(talk.ask()) == TEXT


def test_an_old_connection_ends_with_its_code() -> None:
    with running(limits=Limits(socket_s=0.3)) as server, talking(server) as talk:
        assert text_of(talk.ask()) == TEXT
        error = talk.event()
        assert (error["status"], error["error"]["code"]) == (400, "websocket_connection_limit_reached")
        with pytest.raises(ConnectionClosed):
            talk.event()


def test_a_turn_under_way_outlives_the_limit() -> None:
    with running(ScriptedEngine(pause_s=0.05), limits=Limits(socket_s=0.2)) as server, talking(server) as talk:
        assert text_of(talk.ask()) == TEXT
        assert talk.event()["error"]["code"] == "websocket_connection_limit_reached"


def test_a_peer_that_does_not_read_holds_its_turn_and_is_given_up() -> None:
    limits = Limits(stalled_s=0.4)
    with running(ScriptedEngine(window=1 << 40), limits=limits) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = (
                "GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
                "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            raw.sendall(head.encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 101")
            body = json.dumps({"type": "response.create", "model": "scripted", "input": "forever"}).encode()
            raw.sendall(bytes([0x81, 0x80 | len(body), 0, 0, 0, 0]) + body)
            server.wait_settled(1)
        assert server.settled[0][2].ending == "cancelled"


def test_a_wrong_key_is_refused_at_the_handshake() -> None:
    with running(keys=("right",)) as server:
        for key in (None, "wrong"):
            with pytest.raises(InvalidStatus) as caught, talking(server, key):
                pass
            response = caught.value.response
            assert response.status_code == 401
            assert json.loads(response.body or b"")["error"]["code"] == "invalid_api_key"
        with talking(server, "right") as talk:
            talk.ask()
        assert server.settled[0][1].account.startswith("key-")


def test_beyond_the_most_connections_clients_are_sent_to_http() -> None:
    with running(limits=Limits(sockets=1)) as server:
        with talking(server):
            with pytest.raises(InvalidStatus) as caught, talking(server):
                pass
            assert caught.value.response.status_code == 426
        while True:  # its place is free again; the test's own timeout is the limit
            try:
                with talking(server) as talk:
                    assert text_of(talk.ask()) == TEXT
                    return
            except InvalidStatus:
                time.sleep(0.01)


def test_large_messages_are_compressed_and_small_ones_are_not(server: Running) -> None:
    with talking(server, compression="deflate") as talk:
        sizes: list[tuple[int, bool]] = []
        protocol = talk.socket.protocol
        (extension,) = protocol.extensions
        decode = extension.decode

        def noted(frame: Any, **options: Any) -> Any:
            compressed = frame.rsv1
            whole = decode(frame, **options)
            sizes.append((len(whole.data), compressed))
            return whole

        extension.decode = noted  # pyright: ignore[reportAttributeAccessIssue]
        events = talk.ask("a b", metadata={"large": "x" * 3000})
        assert text_of(events) == TEXT
    assert {size >= 2048 for size, _ in sizes} == {True, False}
    assert all(compressed == (size >= 2048) for size, compressed in sizes)


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_a_frame_beyond_the_limit_closes_its_connection_alone(server: Running, compression: str | None) -> None:
    with talking(server, compression=compression) as talk, talking(server) as other:
        with pytest.raises(ConnectionClosed) as closed:
            talk.ask("x" * LIMITS.frame_bytes)
        # A peer that is still sending when its connection ends may not get to read why.
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
        assert text_of(other.ask()) == TEXT
    assert len(server.engine.seen) == 1
