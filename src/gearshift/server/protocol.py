"""uvicorn's HTTP protocol with our words where no application is asked: a request whose head cannot be read."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gearshift.wire.errors import WireError

_BODY = WireError(400, "This is not a valid HTTP/1.1 request.", code="invalid_http").body()
_HEAD = (
    b"HTTP/1.1 400 Bad Request",
    b"content-type: application/json",
    b"content-length: %d" % len(_BODY),
    b"connection: close",
)


class HttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection."""

    def send_400_response(self, msg: str) -> None:
        self.transport.write(b"\r\n".join((*_HEAD, b"", _BODY)))
        self.transport.close()
