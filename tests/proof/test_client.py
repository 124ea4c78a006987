"""The client of a running server: pieces with running counts, and errors that say what to do."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gearshift.catalog import GEARS, GearName
from gearshift.proof.client import Ask, Client, Piece, Refused, Unreachable
from tests.scripted import WORDS, ScriptedEngine
from tests.server.running import Running, running


async def pieces(url: str, ask: Ask, key: str | None = None) -> list[Piece]:
    async with Client(url, key) as client:
        return [piece async for piece in client.turn(ask)]


def read(url: str, ask: Ask, key: str | None = None) -> list[Piece]:
    return asyncio.run(pieces(url, ask, key))


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("gear", GEARS)
def test_a_turn_comes_in_pieces_with_running_counts(raw: bool, gear: GearName) -> None:
    with running() as server:
        got = read(server.url, Ask("scripted", "hello", gear, raw=raw, max_tokens=5))
    assert "".join(piece.text for piece in got) == "".join(WORDS[:5])
    counts = [piece.counts for piece in got if piece.text]
    assert [one.completion_tokens for one in counts if one] == [1, 2, 3, 4, 5]
    assert got[-1].counts is not None
    assert got[-1].counts.gearshift is not None
    assert (got[-1].counts.gearshift.gear, got[-1].counts.gearshift.rows) == (gear, 5)
    assert [piece.ending for piece in got if piece.ending] == ["length"]
    assert [piece.at for piece in got] == sorted(piece.at for piece in got)


def test_accepted_drafts_are_seen_where_they_arrive() -> None:
    with running() as server:
        got = read(server.url, Ask("scripted", "with drafts", "ultrafast", raw=True, max_tokens=6))
    kept = [piece.counts.gearshift.kept for piece in got if piece.text and piece.counts and piece.counts.gearshift]
    assert kept == sorted(kept)
    assert kept[-1] > 0


def test_what_is_asked_reaches_the_engine() -> None:
    ask = Ask(
        "scripted",
        "hello",
        "priority",
        max_tokens=3,
        temperature=0.5,
        seed=7,
        stop=("x",),
        prediction="gears",
        drafts="off",
        ignore_eos=True,
    )
    with running() as server:
        read(server.url, ask)
        (seen,) = server.engine.seen
    assert (seen.gear, seen.drafts, seen.prediction) == ("priority", "off", "gears")
    sampling = seen.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.seed, sampling.stop) == (3, 0.5, 7, ("x",))
    assert sampling.ignore_eos


def test_leaving_early_ends_the_turn_on_the_server() -> None:
    async def leave(server: Running) -> None:
        async with Client(server.url) as client:
            stream = client.turn(Ask("scripted", "forever", max_tokens=1 << 20))
            async for piece in stream:
                if piece.text:
                    break
            await stream.aclose()

    with running(ScriptedEngine(pause_s=0.001)) as server:
        asyncio.run(leave(server))
        server.wait_settled(1)
        assert server.settled[0][2].ending == "cancelled"


def test_a_refusal_tells_its_status_and_when_to_come_back() -> None:
    with running(ScriptedEngine(only_gear="standard")) as server, pytest.raises(Refused, match="ultrafast") as refused:
        read(server.url, Ask("scripted", "hello", "ultrafast"))
    assert refused.value.status == 429
    assert refused.value.retry_after_s == 4


def test_an_error_in_the_middle_of_a_stream_is_a_refusal() -> None:
    with running() as server, pytest.raises(Refused, match="the script says so"):
        read(server.url, Ask("scripted", "break-late", max_tokens=8))


def test_a_key_opens_a_closed_server() -> None:
    with running(keys=("sesame",)) as server:
        assert read(server.url, Ask("scripted", "hello", max_tokens=2), "sesame")
        with pytest.raises(Refused) as refused:
            read(server.url, Ask("scripted", "hello", max_tokens=2))
    assert refused.value.status == 401


def test_models_are_listed_and_v1_at_the_end_of_an_address_does_not_matter() -> None:
    async def listed(url: str) -> list[str]:
        async with Client(url) as client:
            return await client.models()

    with running() as server:
        assert asyncio.run(listed(server.url)) == asyncio.run(listed(f"{server.url}/v1/")) == ["scripted"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "ftp://127.0.0.1", "http://[::1"])
def test_where_there_is_no_server_the_message_says_so(url: str) -> None:
    with pytest.raises(Unreachable, match=r"No server answers|is no address"):
        read(url, Ask("scripted", "hello"))


def test_a_server_that_goes_away_is_noticed() -> None:
    """A peer that sends half an answer and closes."""

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: {"choices": [{"text": "a"}]}\n\n')
        await writer.drain()
        writer.close()

    async def against_half() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        async with await asyncio.start_server(half, sock=listener):
            await pieces(f"http://127.0.0.1:{listener.getsockname()[1]}", Ask("m", "hello"))

    with pytest.raises(Unreachable, match="before its end"):
        asyncio.run(against_half())
