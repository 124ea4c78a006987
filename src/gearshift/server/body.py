"""Reads a request's JSON body: the right content type, no more bytes than allowed. What it means is wire's matter."""

from __future__ import annotations

from starlette.types import Receive, Scope

from gearshift.wire.errors import WireError

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Far more text than any window here takes."""


class ClientLeft(Exception):
    """The client went away before its request was complete."""


async def read_json_body(scope: Scope, receive: Receive, limit: int = MAX_BODY_BYTES) -> bytes:
    """The bytes of the body.

    Raises:
        WireError: 415 for another content type, 413 for too many bytes.
        ClientLeft: the connection closed.
    """
    headers: dict[bytes, bytes] = dict(scope["headers"])
    # A page can send text/plain across origins without asking first; it cannot do so with JSON.
    media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != b"application/json":
        named = media.decode("latin-1")[:100] or "(none)"
        raise WireError(
            415, f"Expected the content type 'application/json', got {named!r}.", code="unsupported_media_type"
        )
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
        raise WireError(415, "Expected an uncompressed body.", code="unsupported_content_encoding")
    if headers.get(b"content-length", b"0").isdigit() and int(headers.get(b"content-length", b"0")) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> WireError:
    # The rest of the body is never read, so the connection cannot serve another request.
    return WireError(
        413,
        f"The request body is larger than {limit} bytes.",
        code="request_too_large",
        headers={"connection": "close"},
    )
