"""From a free port to the last answered stream: listen, say so, serve, drain, end. Which engines stand behind the
service, and what is printed, is the command line's matter.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from gearshift.accounts import KeyRing
from gearshift.server.app import build_app
from gearshift.server.limits import LIMITS
from gearshift.server.metrics import Metrics
from gearshift.server.protocol import HttpProtocol
from gearshift.server.security import is_loopback
from gearshift.server.socket_protocol import SocketProtocol
from gearshift.service import Service

if TYPE_CHECKING:
    from gearshift.accounts.directory import Directory

_log = logging.getLogger(__name__)

DRAIN_S = 30
"""How long running streams may go on after the first signal to stop."""
_KEEP_ALIVE_S = 75
_BACKLOG = 2048
_LAST_WORDS_S = 1.0


class CannotServe(Exception):
    """The server cannot start as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens, and how else it may be called.

    Attributes:
        host: name or address to bind.
        port: 0 picks a free one.
        allowed_hosts: further names that a request's `Host` may carry.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allowed_hosts: tuple[str, ...] = field(default=())


def allowed_hosts_from_environment() -> tuple[str, ...]:
    """GEARSHIFT_ALLOWED_HOSTS: names separated by commas or white space."""
    return tuple(os.environ.get("GEARSHIFT_ALLOWED_HOSTS", "").replace(",", " ").split())


def keys_from_environment(directory: Directory | None = None) -> KeyRing:
    """GEARSHIFT_API_KEYS, taken out of the environment (from here on only digests are kept), and those of accounts."""
    return KeyRing.from_text(os.environ.pop("GEARSHIFT_API_KEYS", ""), directory)


def listen(address: Address, keys: KeyRing) -> socket.socket:
    """A listening socket, before anything slow is started.

    Raises:
        CannotServe: the port is taken, the host unknown, or the address open to others without any key.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else "it is no host name"
        raise CannotServe(
            f"The host {address.host!r} has no address here ({why}). Use 127.0.0.1, or an address of this machine."
        ) from None
    if keys.open and not is_loopback(str(target[0])):
        raise CannotServe(
            f"Listening on {address.host or target[0]} would let every machine that can reach it use this server. Set "
            "GEARSHIFT_API_KEYS to one or more keys first, make an account, or listen on 127.0.0.1."
        )
    listener = socket.socket(family, kind, protocol)
    try:
        # Reuse is for ports in TIME_WAIT; two listeners on one port remain impossible.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotServe(_why_not(error, address)) from None
    return listener


def serve(
    service: Service,
    metrics: Metrics,
    listener: socket.socket,
    address: Address,
    *,
    ready: Callable[[], None],
    drain_s: int = DRAIN_S,
) -> None:
    """Serve until a signal, then let running streams end for `drain_s` seconds; a second signal ends at once.

    ready: called once requests are answered.
    """
    own = () if address.host in ("0.0.0.0", "::") else (address.host,)
    app = build_app(service, metrics, (*own, *address.allowed_hosts))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(app, service, listener, ready, drain_s))


async def _serve(
    app: ASGIApp, service: Service, listener: socket.socket, ready: Callable[[], None], drain_s: int
) -> None:
    server = _Server(configuration(app, drain_s), ready)
    # What was loaded stays: the collector need not walk it again between two tokens.
    gc.collect()
    gc.freeze()
    try:
        await server.serve(sockets=[listener])
    finally:
        await _close(service)


async def _close(service: Service) -> None:
    for engine in service.engines:
        await engine.close()


def configuration(app: ASGIApp, drain_s: int) -> uvicorn.Config:
    """uvicorn as we run it: it writes no headers of its own, and says what only its developers need to no one."""
    logging.getLogger("uvicorn.error").addFilter(_worth_saying)
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        ws=SocketProtocol,
        ws_max_size=LIMITS.frame_bytes,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=drain_s,
    )


class _Server(uvicorn.Server):
    """uvicorn's server with our manners at both ends of its life."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if running := list(self.server_state.tasks):
            _log.warning("requests that were still running are cut off: %d", len(running))
            for task in running:
                task.cancel()
            # They tell their clients why.
            await asyncio.wait(running, timeout=_LAST_WORDS_S)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not remembered, so not raised again afterwards: a drained server has ended well.
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True


def _worth_saying(record: logging.LogRecord) -> bool:
    """Broken requests are their senders' matter, and what is cut off at the end is said by us."""
    return record.levelno >= logging.ERROR and not str(record.msg).startswith("Cancel ")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    return uvloop.new_event_loop


def _why_not(error: OSError, address: Address) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {address.port} on {address.host} is already in use, perhaps by another Gearshift. Stop that one, or "
            f"choose another port: `gearshift serve --port {address.port + 1}` or `PORT={address.port + 1} make serve`."
        )
    return f"Cannot listen on {address.host}:{address.port}: {error.strerror}."
