"""Small answers that leave in one piece: JSON bodies and errors, as plain ASGI messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from starlette.types import Send

from gearshift.wire.errors import WireError

JSON = (b"content-type", b"application/json")

Headers = Iterable[tuple[bytes, bytes]]


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as they go over the wire."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


async def send_json(send: Send, value: object, *, status: int = 200, headers: Headers = ()) -> None:
    """A value as JSON."""
    await send_bytes(send, msgspec.json.encode(value), status=status, headers=(JSON, *headers))


async def send_error(send: Send, error: WireError, *, headers: Headers = ()) -> None:
    """An error object with its status and headers."""
    own = encoded(error.headers)
    await send_bytes(send, error.body(), status=error.status, headers=(JSON, *own, *headers))


async def send_bytes(send: Send, body: bytes, *, status: int, headers: Headers) -> None:
    """A whole body."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
