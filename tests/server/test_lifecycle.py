"""Signals and ports: a server that is told to stop lets its streams end, but not forever, and not if told twice."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.scripted import WORDS

CUT_OFF = "requests that were still running are cut off: 1"
ROOT = Path(__file__).parents[2]


@dataclass
class Child:
    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/chat/completions"

    def lines(self) -> list[str]:
        """What it says until it ends."""
        assert self.process.stdout is not None
        said = self.process.stdout.read().splitlines()
        self.process.wait()
        return said


@contextlib.contextmanager
def child(drain_s: int) -> Generator[Child]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.server.scripted_main", "0", str(drain_s)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready on ")
        yield Child(process, int(ready.split()[-1]))
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def chat(prompt: str, **fields: object) -> dict[str, object]:
    return {"model": "scripted", "messages": [{"role": "user", "content": prompt}], "stream": True, **fields}


def test_a_signal_lets_running_streams_end_and_takes_no_new_ones() -> None:
    with child(drain_s=60) as server:
        body = chat("forever", max_tokens=100)
        with httpx.Client(timeout=30) as client, client.stream("POST", server.url, json=body) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            server.process.send_signal(signal.SIGTERM)
            while not _refuses(server):
                pass
            assert server.process.poll() is None
            chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        texts = [choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]]
        assert "".join(texts) == ("".join(WORDS) * 12)[: len("".join(texts))]
        assert len([text for text in texts if text]) == 100
        assert server.lines()[-2:] == ["settled finished", "ended well"]
        assert server.process.returncode == 0


def _refuses(server: Child) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{server.port}/healthz", timeout=5)
    except httpx.ConnectError:
        return True
    except (httpx.RemoteProtocolError, httpx.ReadError):
        # The socket closed while this connection stood in its queue: ask once more.
        return False
    return False


def test_a_stream_without_end_is_told_when_patience_ends() -> None:
    with child(drain_s=1) as server:
        with httpx.Client(timeout=30) as client, client.stream("POST", server.url, json=chat("forever")) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            server.process.send_signal(signal.SIGTERM)
            last = [line for line in lines if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert server.lines() == [CUT_OFF, "settled cancelled", "ended well"]
        assert server.process.returncode == 0


def test_a_second_signal_ends_at_once() -> None:
    with child(drain_s=3600) as server:
        with httpx.Client(timeout=30) as client, client.stream("POST", server.url, json=chat("forever")) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            server.process.send_signal(signal.SIGTERM)
            while not _refuses(server):
                pass
            server.process.send_signal(signal.SIGTERM)
            last = [line for line in lines if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert server.lines() == [CUT_OFF, "settled cancelled", "ended well"]
        assert server.process.returncode == 0


def test_a_second_server_on_a_port_says_so() -> None:
    with child(drain_s=1) as server:
        second = subprocess.run(
            [sys.executable, "-m", "tests.server.scripted_main", str(server.port), "1"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert f"Port {server.port} on 127.0.0.1 is already in use" in second.stderr
        assert "Traceback" not in second.stderr


@contextlib.contextmanager
def talking(server: Child) -> Generator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{server.port}/v1/responses") as socket:
        yield socket


def create(socket: ClientConnection, prompt: str, **fields: object) -> None:
    socket.send(json.dumps({"type": "response.create", "model": "scripted", "input": prompt, **fields}))
    assert json.loads(socket.recv())["type"] == "response.created"


def test_a_signal_lets_turns_of_sockets_end_and_then_closes_them() -> None:
    with child(drain_s=60) as server:
        with talking(server) as idle, talking(server) as socket:
            create(socket, "forever", max_output_tokens=100)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                idle.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
            assert server.process.poll() is None
            events = [json.loads(frame) for frame in socket]
        assert events[-1]["type"] == "response.incomplete"
        assert events[-1]["response"]["usage"]["output_tokens"] == 100
        assert server.lines()[-2:] == ["settled finished", "ended well"]
        assert server.process.returncode == 0


def test_a_turn_of_a_socket_is_told_when_patience_ends() -> None:
    with child(drain_s=1) as server:
        with talking(server) as socket:
            create(socket, "forever")
            server.process.send_signal(signal.SIGTERM)
            events: list[dict[str, Any]] = []
            with contextlib.suppress(ConnectionClosed):
                while True:
                    events.append(json.loads(socket.recv()))
        assert events[-1]["type"] == "response.failed"
        assert "shutting down" in events[-1]["response"]["error"]["message"]
        assert server.lines() == [CUT_OFF, "settled cancelled", "ended well"]
        assert server.process.returncode == 0
