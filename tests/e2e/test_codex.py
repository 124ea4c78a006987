"""The real Codex on a running server: over the WebSocket, warmed up, in the gear that was chosen, and resumed."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import httpx

from gearshift.conversation import Conversation, Message
from gearshift.server.limits import Limits
from tests.e2e.breaking import breaking
from tests.e2e.codex_binary import Event, codex_exec, codex_folder
from tests.e2e.started import started
from tests.scripted import WORDS, ScriptedEngine
from tests.server.running import running
from tests.server.test_turns import request_bytes

TEXT = "".join(WORDS)
GEARS_BY_TIER = (("default", "standard"), ("fast", "priority"), ("ultrafast", "ultrafast"))


def answers(events: list[Event]) -> list[str]:
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"]


def test_a_session_in_every_gear_and_its_resumption(tmp_path: Path) -> None:
    """On a scripted engine, so that every event is known: one warm-up and one turn each, over the socket alone."""
    codex_folder()
    with running(ScriptedEngine(window=1 << 20)) as server:
        for number, (tier, gear) in enumerate(GEARS_BY_TIER, 1):
            events, said = codex_exec(server.url, tmp_path, "-c", f"service_tier={tier}", "Say hello")
            assert answers(events) == [TEXT], said
            assert "metadata" not in said, "the catalogue was not understood"
            assert "Falling back" not in said
            server.wait_settled(2 * number)
            warm_up, turn = server.engine.seen[-2:]
            assert (warm_up.sampling.max_tokens, turn.sampling.max_tokens) == (1, None)
            assert turn.gear == gear
            assert [usage.ending for _, _, usage in server.settled[-2:]] == ["finished", "finished"]
        # Codex keeps the gear of a session.
        events, said = codex_exec(server.url, tmp_path, "resume", "--last", "Again")
        assert answers(events) == [TEXT], said
        turn = server.engine.seen[-1]
        assert turn.gear == "ultrafast"
        assert isinstance(turn.prompt, Conversation)
        assert turn.prompt.items[-3:] == (
            Message("user", "Say hello"),
            Message("assistant", TEXT),
            Message("user", "Again"),
        )
        server.wait_settled(8)
        assert len(server.settled) == 8


def test_a_session_that_loses_its_sockets_goes_on_over_http(tmp_path: Path) -> None:
    """The answer is there once, and so is what was said; every turn that was begun is settled once."""
    codex_folder()
    retries = "model_providers.gearshift.stream_max_retries=1"
    engine = ScriptedEngine(window=1 << 20, pause_s=0.02)
    with running(engine) as server, breaking(server.port, b"output_text.delta") as port:
        events, said = codex_exec(f"http://127.0.0.1:{port}", tmp_path, "-c", retries, "Say hello")
        assert answers(events) == [TEXT], said
        server.wait_settled(len(engine.seen))
        endings = [usage.ending for _, _, usage in server.settled]
        assert endings[-1] == "finished"
        assert "cancelled" in endings
        assert len({turn_id for turn_id, _, _ in server.settled}) == len(server.settled) == len(engine.seen)
        last = engine.seen[-1].prompt
        assert isinstance(last, Conversation)
        assert last.items.count(Message("user", "Say hello")) == 1
        assert not [item for item in last.items if isinstance(item, Message) and item.role == "assistant"]
        metrics = httpx.get(f"{server.url}/metrics").text
        assert 'gearshift_requests_total{endpoint="responses",status="200"} 1.0' in metrics


def test_codex_stays_with_http_where_no_socket_is_free_and_waits_for_its_seat(tmp_path: Path) -> None:
    """Comments do not keep Codex waiting, events do."""
    codex_folder()
    limits = Limits(sockets=0, silent_s=0.2, comment_s=0.2)
    idle = "model_providers.gearshift.stream_idle_timeout_ms=1500"
    engine = ScriptedEngine(window=1 << 20, slots=1, pause_s=0.01)
    with running(engine, limits=limits) as server:
        holder = socket.create_connection(("127.0.0.1", server.port))
        holder.sendall(request_bytes({"model": "scripted", "stream": True, "input": "forever"}, "/v1/responses"))
        while not engine.running:
            time.sleep(0.01)
        release = threading.Timer(5.0, holder.close)
        release.start()
        events, said = codex_exec(server.url, tmp_path, "-c", idle, "Say hello")
        release.join()
        assert answers(events) == [TEXT], said
        assert not [event for event in events if event["type"] == "error"]
        server.wait_settled(2)
        assert len(engine.seen) == 2


def test_the_real_model_finds_what_the_warm_up_has_read(tmp_path: Path) -> None:
    """Whatever a model of this size says to so many tools: the first turn finds them in the cache."""
    codex_folder()
    # The cache bounds an answer that does not find its end; Codex then says that it is incomplete.
    with started("--cache-tokens", "4096") as server:
        events, said = codex_exec(server.url, tmp_path, "Say hello")
        metrics = server.metrics()
    assert [event["type"] for event in events[:2]] == ["thread.started", "turn.started"], said
    assert metrics['gearshift_requests_total{endpoint="websocket",status="200"}'] >= 2
    assert metrics['gearshift_tokens_total{kind="cached"}'] > 500
    assert not [name for name in metrics if 'endpoint="responses"' in name]
