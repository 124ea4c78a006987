"""Web pages, strangers and wrong keys stay outside, on HTTP and on WebSocket."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gearshift.accounts import KeyRing
from gearshift.server.lifecycle import Address, CannotServe, listen
from gearshift.server.security import host_of, is_loopback
from tests.server.running import Running, running

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "a"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as started:
        yield started


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("localhost:8000", "localhost"),
        ("LOCALHOST", "localhost"),
        ("localhost.", "localhost"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:8000", "::1"),
        ("[::1]", "::1"),
        ("evil.example:8000", "evil.example"),
        ("a:b", "a:b"),
        ("", ""),
    ],
)
def test_host_of(authority: str, host: str) -> None:
    assert host_of(authority) == host


def test_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1")))
    assert not any(
        map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example"))
    )


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "169.254.169.254", ""])
@pytest.mark.parametrize("path", ["/healthz", "/v1/models", "/metrics", "/openapi.json"])
def test_an_unknown_host_reads_nothing(server: Running, host: str, path: str) -> None:
    answer = httpx.get(server.url + path, headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "host_not_allowed"


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:99"])
def test_loopback_names_are_ours(server: Running, host: str) -> None:
    assert httpx.get(f"{server.url}/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "file://", ""]
)
def test_a_foreign_page_drives_nothing(server: Running, origin: str) -> None:
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=CHAT, headers={"origin": origin})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "origin_not_allowed"
    assert not server.engine.seen


def test_our_own_page_may(server: Running) -> None:
    answer = httpx.get(f"{server.url}/v1/models", headers={"origin": server.url})
    assert answer.status_code == 200


def test_no_answer_invites_other_origins(server: Running) -> None:
    answer = httpx.options(
        f"{server.url}/v1/chat/completions",
        headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
    )
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"origin": "https://evil.example"}, 403), ({"origin": "null"}, 403), ({"host": "evil.example"}, 403)],
)
def test_websocket_upgrades(server: Running, headers: dict[str, str], status: int) -> None:
    url = server.url.replace("http", "ws", 1) + "/v1/responses"
    origin = headers.get("origin")
    host = headers.get("host")
    with pytest.raises(InvalidStatus) as caught:
        if host is None:
            connect(url, origin=None if origin is None else origin)  # pyright: ignore[reportArgumentType]
        else:
            connect(f"ws://{host}/v1/responses", sock=_socket(server))
    assert caught.value.response.status_code == status


def _socket(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port))


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonx"],
)
def test_bodies_must_be_json_by_content_type(server: Running, content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    answer = httpx.post(f"{server.url}/v1/chat/completions", content=b"{}", headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_charset_is_fine(server: Running) -> None:
    answer = httpx.post(
        f"{server.url}/v1/chat/completions", json=CHAT, headers={"content-type": "Application/JSON; charset=utf-8"}
    )
    assert answer.status_code == 200


def test_keys_open_every_door_but_health() -> None:
    with running(keys=("right", "also-right")) as server:
        for path in ("/v1/models", "/v1/models/scripted", "/metrics"):
            answer = httpx.get(server.url + path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"]["code"] == "invalid_api_key"
            assert httpx.get(server.url + path, headers={"authorization": "bearer right"}).status_code == 200
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        # Refused before the body is looked at.
        url = f"{server.url}/v1/chat/completions"
        for authorization in ("", "Bearer wrong", "Basic right", "Bearer", "Bearer \xff"):
            headers = {"authorization": authorization.encode("latin-1")}
            assert httpx.post(url, content=b"no json", headers=headers).status_code == 401  # pyright: ignore
        assert httpx.post(url, json=CHAT, headers={"authorization": "Bearer also-right"}).status_code == 200
        ((_, caller, _),) = server.settled
        assert caller.account.startswith("key-")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_open_server_stays_on_loopback(host: str) -> None:
    with pytest.raises(CannotServe, match="GEARSHIFT_API_KEYS"):
        listen(Address(host, 0), KeyRing())


def test_a_server_with_keys_may_listen_anywhere() -> None:
    listen(Address("0.0.0.0", 0), KeyRing(["key"])).close()


def test_a_port_in_use_is_said_plainly() -> None:
    first = listen(Address("127.0.0.1", 0), KeyRing())
    port = first.getsockname()[1]
    with first, pytest.raises(CannotServe, match=f"Port {port} on 127.0.0.1 is already in use"):
        listen(Address("127.0.0.1", port), KeyRing())


def test_a_host_that_does_not_exist_is_said_plainly() -> None:
    for host in ("no-such-host.invalid", "no host", "x" * 300, "a..b"):
        with pytest.raises(CannotServe, match="has no address here") as caught:
            listen(Address(host, 0), KeyRing())
        assert host in str(caught.value)
