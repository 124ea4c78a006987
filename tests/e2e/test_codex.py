"""The real Codex on a running server: over the WebSocket, warmed up, in the gear that was chosen, and resumed."""

from __future__ import annotations

from pathlib import Path

from gearshift.conversation import Conversation, Message
from tests.e2e.codex_binary import Event, codex_exec, codex_folder
from tests.e2e.started import started
from tests.scripted import WORDS, ScriptedEngine
from tests.server.running import running

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


def test_the_real_model_finds_what_the_warm_up_has_read(tmp_path: Path) -> None:
    codex_folder()
    # The cache bounds an answer that does not find its end; Codex then says that it is incomplete.
    with started("--cache-tokens", "1024") as server:
        events, said = codex_exec(server.url, tmp_path, "Say hello")
        metrics = server.metrics()
    assert answers(events), said
    assert metrics['gearshift_tokens_total{kind="cached"}'] > 0
    assert metrics['gearshift_requests_total{endpoint="websocket",status="200"}'] == 2
    assert not [name for name in metrics if 'endpoint="responses"' in name]
