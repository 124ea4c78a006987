"""Whatever is sent, the answer is never a 500 and the server goes on: thousands of broken bodies, and schemathesis
against the document that the server itself publishes.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripted import ScriptedEngine
from tests.server.running import Running, running

VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "scripted",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant"}],
        "logit_bias": {"1": 2},
        "stop": ["x"],
        "seed": 1,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "text"},
        "service_tier": "auto",
        "prediction": {"type": "content", "content": [{"type": "text", "text": "a"}]},
        "temperature": 0.5,
        "max_tokens": 3,
    },
    "/v1/completions": {
        "model": "scripted",
        "prompt": ["a", "b"],
        "n": 2,
        "echo": True,
        "max_tokens": 3,
        "drafts": "off",
    },
    "/v1/responses": {
        "model": "scripted",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "reasoning"}],
        "instructions": "b",
        "text": {"format": {"type": "text"}},
        "metadata": {"a": "b"},
        "gear_fallback": True,
        "max_output_tokens": 3,
    },
}

INSERTS = (b"\\ud800", b"\xff\xfe", b"\x00", b"1e999", b"NaN", b"{", b'"')

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def inside(value: Any) -> list[tuple[str | int, Any]]:
    """Keys or indexes of a container, with what is there."""
    if isinstance(value, dict):
        return list(cast(dict[str | int, Any], value).items())
    return list(enumerate(cast(list[Any], value))) if isinstance(value, list) else []


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a body, its own included."""
    return [path] + [place for key, one in inside(value) for place in places(one, (*path, key))]


def replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """A body with something else in one place."""
    if not path:
        return new
    changed = {key: replaced(one, path[1:], new) if key == path[0] else one for key, one in inside(value)}
    return changed if isinstance(value, dict) else list(changed.values())


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """A path and a body: right but for one place, or with bytes cut, changed or put in, or any bytes at all."""
    path = draw(st.sampled_from(sorted(VALID)))
    body = replaced(VALID[path], draw(st.sampled_from(places(VALID[path]))), draw(values))
    raw = json.dumps(body).encode()
    damage = draw(st.sampled_from(("none", "none", "cut", "change", "insert", "nest", "any")))
    at = draw(st.integers(0, max(0, len(raw) - 1)))
    if damage == "cut":
        raw = raw[:at]
    elif damage == "change":
        raw = raw[:at] + draw(st.binary(min_size=1, max_size=3)) + raw[at + 1 :]
    elif damage == "insert":
        raw = (
            raw[:at]
            + draw(st.sampled_from((b"\\ud800", b"\xff\xfe", b"\x00", b"1e999", b"NaN", b"{", b'"')))
            + raw[at:]
        )
    elif damage == "nest":
        depth = draw(st.sampled_from((10, 1000, 100_000)))
        raw = raw[:at] + draw(st.sampled_from((b"[", b'{"a":'))) * depth + raw[at:]
    elif damage == "any":
        raw = draw(st.binary(max_size=200))
    return path, raw


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ScriptedEngine(window=1 << 40, patience=20)) as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers={"content-type": "application/json"}, timeout=30) as client:
        yield client


def check(client: httpx.Client, path: str, raw: bytes) -> None:
    answer = client.post(path, content=raw)
    assert answer.status_code in (200, 400, 404), (answer.status_code, answer.text, raw[:500])
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["message"]


@settings(max_examples=100)
@given(bodies())
def test_a_hundred_malformed_bodies(client: httpx.Client, case: tuple[str, bytes]) -> None:
    check(client, *case)


@pytest.mark.long
@settings(max_examples=1000)
@given(bodies())
def test_a_thousand_malformed_bodies(client: httpx.Client, case: tuple[str, bytes]) -> None:
    check(client, *case)


def test_the_mutations_hit_both_sides(client: httpx.Client) -> None:
    """The cases above would prove little if every body were refused for the same reason."""
    for path, body in VALID.items():
        assert client.post(path, json=body).status_code == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /v1/models/%00%ff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request(server: Running, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 500 " not in head.partition(b"\r\n")[0]
    assert not body or json.loads(body)["error"]["message"]
    assert httpx.get(f"{server.url}/healthz").status_code == 200


def schemathesis(server: Running, folder: Path, examples: int) -> None:
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    assert program, "schemathesis is one of the dev dependencies"
    command = [program, "run", f"{server.url}/openapi.json", "--max-examples", str(examples)]
    command += ["--checks", "all", "--no-color", "--seed", os.environ.get("GEARSHIFT_TEST_SEED", "1")]
    done = subprocess.run(
        [*command, "--generation-database", "none"],
        cwd=folder,
        env=os.environ | {"SCHEMATHESIS_HOOKS": "tests.server.schemathesis_hooks", "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "9 selected / 9 total" in done.stdout


def test_schemathesis_finds_nothing(server: Running, tmp_path: Path) -> None:
    schemathesis(server, tmp_path, 10)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_schemathesis_finds_nothing_in_many_examples(server: Running, tmp_path: Path) -> None:
    schemathesis(server, tmp_path, 200)
