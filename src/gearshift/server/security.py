"""Who may speak to this server at all. A web page that the user happens to visit must not be able to drive or read it:
so a request must name a host that is ours, and a browser's request must come from our own pages. Keys are checked
later, by the service; here only the key is taken out of its header.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from gearshift.server.answers import send_error
from gearshift.wire.errors import WireError


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """The host in `host`, `host:port` or `[v6]:port`, in lower case and without a final dot."""
    if authority.startswith("["):
        host = authority[1:].partition("]")[0]
    else:
        host, colon, port = authority.rpartition(":")
        host = host if colon and port.isdecimal() else authority
    return host.lower().rstrip(".")


def bearer(scope: Scope) -> str | None:
    """The API key of a request, if it carries one."""
    for name, value in _headers(scope):
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            return key.strip() if scheme.lower() == "bearer" else None
    return None


class Gate:
    """Refuses unknown hosts and foreign origins, on HTTP and on WebSocket upgrades alike."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        """hosts: names and addresses under which this server is known, beside loopback ones."""
        self._app = app
        self._hosts = {host_of(host) for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (error := self._refusal(scope)) is not None:
            if scope["type"] == "http":
                await send_error(send, error)
            else:
                # A close before the handshake is a 403 to the peer.
                await send({"type": "websocket.close", "code": 1008, "reason": str(error)})
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> WireError | None:
        headers = _headers(scope)
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._known(host_of(hosts[0]), scope):
            named = hosts[0] if hosts else "(none)"
            return WireError(
                403,
                f"This server does not answer to the host {named[:200]!r}. Use the address it was started on, or list "
                "the name in GEARSHIFT_ALLOWED_HOSTS.",
                code="host_not_allowed",
                kind="permission_error",
            )
        for name, value in headers:
            if name == b"origin" and not _same_origin(value.decode("latin-1"), hosts[0]):
                return WireError(
                    403,
                    f"Pages of the origin {value.decode('latin-1')[:200]!r} may not use this server: only its own may.",
                    code="origin_not_allowed",
                    kind="permission_error",
                )
        return None

    def _known(self, host: str, scope: Scope) -> bool:
        if is_loopback(host) or host in self._hosts:
            return True
        # The address at which this very connection arrived: no page can forge a literal address by its own DNS.
        server = scope.get("server")
        return bool(server) and host == server[0]


def _same_origin(origin: str, host: str) -> bool:
    scheme, _, authority = origin.partition("://")
    return scheme in ("http", "https") and authority.lower() == host.lower()


def _headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    return scope["headers"]
