"""How long the server waits for clients, how long clients wait for their first event, and how much they may send."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server.

    Attributes:
        stalled_s: a write that makes no progress for one to two times this long is given up: the peer is gone or does
            not read.
        silent_s: a stream whose first event takes longer begins without it; what goes wrong from then on is an event.
        comment_s: between the comments that keep such a stream alive: proxies close what is silent for a minute.
        body_bytes: most bytes of one request: far more text than any window here takes.
        bodies_bytes: most bytes of all requests under way.
        frame_bytes: most bytes of one request on a WebSocket, which arrives before it can be counted with the others.
        socket_s: how long a WebSocket stays; its client then opens another.
        sockets: most WebSockets at once; further clients are told to stay with HTTP.
        frames: most requests that wait on one WebSocket for the one before them.
    """

    stalled_s: float = 60.0
    silent_s: float = 10.0
    comment_s: float = 15.0
    body_bytes: int = 32 << 20
    bodies_bytes: int = 256 << 20
    frame_bytes: int = 8 << 20
    socket_s: float = 3600.0
    sockets: int = 256
    frames: int = 4


LIMITS = Limits()
