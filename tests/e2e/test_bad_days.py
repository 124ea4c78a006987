"""Bad days of a real server: clients that vanish, crowds, broken bodies, signals, and a port that is taken."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest
from hypothesis import given, settings

from tests.e2e.started import MODEL, ROOT, Started, started
from tests.server.test_malformed import bodies

CANCELLED = 'gearshift_turns_total{ending="cancelled",gear="standard"}'


def completion(prompt: str = "Once upon a time", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "temperature": 0, "ignore_eos": True, **fields}


def request_bytes(body: dict[str, Any]) -> bytes:
    raw = json.dumps(body).encode()
    head = ["POST /v1/completions HTTP/1.1", "host: localhost", "content-type: application/json"]
    return "\r\n".join([*head, f"content-length: {len(raw)}", "", ""]).encode() + raw


def wait_until_idle(server: Started) -> None:
    """The test's own timeout is the limit."""
    while True:
        metrics = server.metrics()
        if metrics["gearshift_running"] == metrics["gearshift_waiting"] == 0:
            return
        time.sleep(0.02)


@pytest.mark.parametrize("stream", [True, False])
def test_clients_that_vanish_free_their_rows(server: Started, stream: bool) -> None:
    before = server.metrics().get(CANCELLED, 0)
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    for number, client in enumerate(clients):
        client.sendall(request_bytes(completion(f"Story {number}:", stream=stream, max_tokens=8000)))
    while server.metrics()["gearshift_running"] < 8:
        time.sleep(0.02)
    if stream:
        assert all(client.recv(1000).startswith(b"HTTP/1.1 200") for client in clients)
    for client in clients:
        client.close()
    wait_until_idle(server)
    assert server.metrics()[CANCELLED] == before + 8


def test_200_connections_at_once_on_32_streams(server: Started) -> None:
    """All are answered in full, as if each were alone."""

    async def crowd() -> list[httpx.Response]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=200), timeout=280) as client:
            bodies = [completion(f"Number {number % 4} is", max_tokens=6) for number in range(200)]
            return await asyncio.gather(*(client.post(f"{server.url}/v1/completions", json=body) for body in bodies))

    answers = asyncio.run(crowd())
    assert [answer.status_code for answer in answers] == [200] * 200
    texts = [answer.json()["choices"][0]["text"] for answer in answers]
    alone = [
        httpx.post(f"{server.url}/v1/completions", json=completion(f"Number {number} is", max_tokens=6), timeout=60)
        for number in range(4)
    ]
    assert texts == [answer.json()["choices"][0]["text"] for answer in alone] * 50
    wait_until_idle(server)


@settings(max_examples=100)
@given(bodies())
def test_malformed_bodies_never_break_it(server: Started, case: tuple[str, bytes]) -> None:
    path, raw = case
    raw = raw.replace(b'"scripted"', json.dumps(MODEL).encode())
    with httpx.Client(timeout=120) as client:
        answer = client.post(server.url + path, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 404), (answer.status_code, answer.text, raw[:500])


def test_foreign_pages_and_hosts_are_refused(server: Started) -> None:
    url = f"{server.url}/v1/completions"
    assert httpx.post(url, json=completion(), headers={"origin": "https://evil.example"}).status_code == 403
    assert httpx.post(url, json=completion(), headers={"host": "evil.example"}).status_code == 403
    assert httpx.post(url, content=json.dumps(completion()).encode()).status_code == 415


def test_a_second_server_on_the_port_says_so_before_it_loads(server: Started) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "gearshift", "serve", "--port", str(server.port)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert f"Port {server.port} on 127.0.0.1 is already in use" in second.stderr
    assert "Traceback" not in second.stderr
    assert second.stdout == ""


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--model", "no-such-model", "'no-such-model' is no known model"),
        ("--model", "/tmp", "'/tmp' is no known model"),
        ("--model", "/dev/zero", "no regular file"),
        ("--model", str(ROOT / "pyproject.toml"), "expected a GGUF file"),
        ("--host", "no-such-host.invalid", "'no-such-host.invalid' has no address here"),
        ("--host", "0.0.0.0", "GEARSHIFT_API_KEYS"),
        ("GEARSHIFT_HOME", "/proc/x", "set GEARSHIFT_HOME to another folder"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(option: str, value: str, said: str) -> None:
    command = [sys.executable, "-m", "gearshift", "serve", "--port", "0"]
    environment = dict(os.environ)
    if option.startswith("--"):
        command += [option, value]
    else:
        environment[option] = value
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("gearshift: ")
    assert said in line


def test_a_signal_drains_streams_and_the_process_ends_well() -> None:
    with started("--cache-tokens", "16384") as server:
        body = completion(stream=True, max_tokens=60, stream_options={"include_usage": True})
        with (
            httpx.Client(timeout=120) as client,
            client.stream("POST", f"{server.url}/v1/completions", json=body) as answer,
        ):
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            server.process.send_signal(signal.SIGTERM)
            *_, usage, done = [line for line in lines if line]
        assert done == "data: [DONE]"
        assert json.loads(usage.removeprefix("data: "))["usage"]["completion_tokens"] == 60
        assert server.process.wait() == 0


def test_keys_guard_a_server() -> None:
    with started("--cache-tokens", "4096", environment={"GEARSHIFT_API_KEYS": "key-one,key-two"}) as server:
        url = f"{server.url}/v1/completions"
        assert httpx.post(url, json=completion(max_tokens=1)).status_code == 401
        headers = {"authorization": "Bearer key-two"}
        assert httpx.post(url, json=completion(max_tokens=1), headers=headers, timeout=60).status_code == 200
        assert "key-" not in "".join(server.said)
        assert "GEARSHIFT_API_KEYS" in "".join(server.said)
