"""Reads a request's JSON body: the right content type, no more bytes than allowed, alone or together with the bodies of
other requests. What it means is wire's matter.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from starlette.types import Receive, Scope

from gearshift.wire.errors import WireError


class ClientLeft(Exception):
    """The client went away before its request was complete."""


class Held:
    """Bytes of one body."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.bytes = 0

    def expect(self, count: int) -> None:
        """So many will come altogether. Raises WireError: 413 when they are too many."""
        if count > self._bodies.largest:
            message = f"The request body is larger than {self._bodies.largest} bytes."
            raise WireError(413, message, code="request_too_large")

    def add(self, count: int) -> None:
        """More came. Raises WireError: 413 when they are too many, 503 when all bodies together are."""
        self.bytes += count
        self._bodies.bytes += count
        self.expect(self.bytes)
        if self._bodies.bytes > self._bodies.most:
            raise WireError(
                503,
                f"Requests of more than {self._bodies.most} bytes together are under way. Try again later.",
                code="overloaded",
                kind="server_error",
                retry_after_s=5,
            )


class Bodies:
    """The bodies of all requests under way: what is made of them lives as long as their turns.

    Attributes:
        largest: most bytes of one.
        most: most bytes of all.
        bytes: how many there are.
    """

    def __init__(self, largest: int, most: int) -> None:
        self.largest = largest
        self.most = most
        self.bytes = 0

    @contextmanager
    def hold(self) -> Generator[Held]:
        """Room for one body, given back at the end of the block."""
        held = Held(self)
        try:
            yield held
        finally:
            self.bytes -= held.bytes


async def read_json_body(scope: Scope, receive: Receive, held: Held) -> bytes:
    """The bytes of the body.

    A refusal leaves at once and the server discards what still comes, so that a client that reads its answer only when
    it has sent everything finds the answer, and not a closed connection.

    Raises:
        WireError: 415 for another content type, 413 or 503 for too many bytes.
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
    length = headers.get(b"content-length", b"")
    if length.isdigit():
        held.expect(int(length))
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part: bytes = message.get("body", b"")
        held.add(len(part))
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
