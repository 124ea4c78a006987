"""`GET /v1/responses`: the handshake of a WebSocket, and how many there may be. What is said on one is in
`conversing`.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from gearshift.server.answers import JSON, encoded
from gearshift.server.body import Bodies
from gearshift.server.conversing import Conversing
from gearshift.server.limits import Limits
from gearshift.server.metrics import Metrics
from gearshift.server.recall import ConnectionMemory
from gearshift.server.security import bearer
from gearshift.service import Service
from gearshift.stored import StoredResponses
from gearshift.wire.errors import WireError, from_below


class ResponsesSocket:
    """An ASGI application for WebSockets."""

    def __init__(
        self, service: Service, metrics: Metrics, bodies: Bodies, stored: StoredResponses, limits: Limits
    ) -> None:
        """bodies: those of all endpoints."""
        self._service = service
        self._metrics = metrics
        self._bodies = bodies
        self._stored = stored
        self._limits = limits
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        try:
            caller = self._service.identify(bearer(scope))
            if self._open >= self._limits.sockets:
                message = f"There are {self._open} WebSockets already. Use POST, or come back later."
                raise WireError(426, message, code="websocket_limit_reached", headers={"upgrade": "websocket"})
        except Exception as error:
            await _deny(send, from_below(error, {}))
            return
        self._open += 1
        try:
            await send({"type": "websocket.accept"})
            memory = ConnectionMemory(self._stored, caller)
            await Conversing(
                caller, memory, self._service, self._metrics, self._bodies, self._limits, receive, send
            ).run()
        except asyncio.CancelledError:
            # The server is going down; the client was told.
            pass
        finally:
            self._open -= 1


async def _deny(send: Send, error: WireError) -> None:
    headers = [JSON, *encoded(error.headers)]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": error.body()})
