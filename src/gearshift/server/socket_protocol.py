"""uvicorn's WebSocket protocol with our manners: small messages leave uncompressed, running turns may end when the
server stops, and a peer that never takes what is left for it is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.frames import Frame
from websockets.server import ServerProtocol
from websockets.typing import ExtensionParameter

STOPPING = "gearshift.stopping"
"""Type of the message that tells the application that the server is about to stop."""

COMPRESSED_BYTES = 2048
"""Messages below this leave as they are: a token's event is a packet with or without compression, which would only
cost time."""

_LINGER_S = 10.0
_WINDOW_BITS = 12


class _Sparing(PerMessageDeflate):
    """Compresses messages that are worth it. A message that is not compressed leaves the window as it is, so both sides
    stay in step."""

    def encode(self, frame: Frame) -> Frame:
        return frame if len(frame.data) < COMPRESSED_BYTES else super().encode(frame)


class _SparingFactory(ServerPerMessageDeflateFactory):
    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Any]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        agreed, extension = super().process_request_params(params, accepted_extensions)
        sparing = _Sparing(
            extension.remote_no_context_takeover,
            extension.local_no_context_takeover,
            extension.remote_max_window_bits,
            extension.local_max_window_bits,
            extension.compress_settings,
        )
        return agreed, sparing


class SocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket on one connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        factory = _SparingFactory(
            server_max_window_bits=_WINDOW_BITS, client_max_window_bits=_WINDOW_BITS, compress_settings={"memLevel": 5}
        )
        self.conn = ServerProtocol(extensions=[factory], max_size=config.ws_max_size, logger=self.logger)
        self._stopping = False

    def shutdown(self) -> None:
        if self.handshake_complete and not self.close_sent:
            self._stopping = True
            self.queue.put_nowait(cast(ASGIReceiveEvent, {"type": STOPPING}))
        else:
            super().shutdown()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # A refusal is an end of the handshake too: nothing is missing that would have to be reported.
            self.handshake_complete = True
        if self._stopping and message["type"] == "websocket.close":
            # The peer's own farewell is not waited for: the server is on its way out.
            self.transport.close()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self.loop.call_later(_LINGER_S, self.transport.abort)
