"""Frames of `GET /v1/responses` over a WebSocket: what clients send, and the events of an answer one frame each. The
events are those of the HTTP stream, byte for byte; only errors, which there have a status line, look different here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import msgspec

from gearshift.accounts.books import Granted
from gearshift.conversation import Conversation
from gearshift.engine.protocol import Started
from gearshift.service import Asked
from gearshift.wire.answer import Heading
from gearshift.wire.decode import decode
from gearshift.wire.errors import ErrorObject, WireError
from gearshift.wire.responses import Memory, ResponseCall, ResponseRequest

CREATE = "response.create"
INTERRUPT = "response.interrupt"
IGNORED = frozenset({"response.processed"})
"""Frames that some versions of clients send and that ask for nothing."""

KEEPALIVE = '{"type":"keepalive"}'
"""Says that a turn is still under way; clients know no such event and only note that something came."""


class FrameHead(msgspec.Struct):
    """What must be known of a frame before it is read."""

    type: str
    response_id: str | None = None


class CreateFrame(ResponseRequest, kw_only=True):
    """A response request; with `generate: false` it only says what the next one will begin with."""

    generate: bool | None = None


class ErrorFrame(msgspec.Struct):
    """A request was refused. Clients ignore an error without a status, and read the headers as those of an answer."""

    status: int
    error: ErrorObject
    headers: dict[str, str]
    type: Literal["error"] = "error"


class LimitWindow(msgspec.Struct):
    """How much of a tank's window is used, and when it ends; minutes and Unix time."""

    used_percent: float
    window_minutes: int
    reset_at: int | None


class LimitsEvent(msgspec.Struct):
    """What an HTTP answer says in headers: the state of the tank that the turn draws from."""

    rate_limits: dict[str, LimitWindow]
    type: Literal["codex.rate_limits"] = "codex.rate_limits"


_head = msgspec.json.Decoder(FrameHead)
_create = msgspec.json.Decoder(CreateFrame)


class CreateCall(ResponseCall):
    """A response request of a frame.

    Attributes:
        warm_up: whether it is not to be answered, only to be prepared.
    """

    def __init__(self, frame: CreateFrame, memory: Memory) -> None:
        self.warm_up = frame.generate is False
        super().__init__(frame, memory, may_be_empty=self.warm_up)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read: only a warm-up may be so."""
        (asked,) = self.asked()
        return isinstance(asked.prompt, Conversation) and not asked.prompt.items

    def prefill(self) -> Asked:
        """The turn that brings the conversation into the cache; the one token that it produces is nobody's. It is work
        of the turn that follows, done earlier, so it runs in the same gear, but waits for no seat of it."""
        (asked,) = self.asked()
        sampling = replace(asked.sampling, max_tokens=1)
        return replace(asked, sampling=sampling, gear_fallback=True, drafts="off", constraint=None)


def read_head(frame: str) -> FrameHead:
    """What a frame is. Raises WireError."""
    return decode(_head, frame.encode())


def read_create(frame: str, memory: Memory) -> CreateCall:
    """The request in a frame. Raises WireError."""
    return CreateCall(decode(_create, frame.encode()), memory)


def warmed_up(call: CreateCall, heading: Heading) -> bytes:
    """The whole answer to a warm-up: it was created, and it is complete."""
    answer = call.stream_answer(heading)
    (asked,) = call.asked()
    begun = answer.feed([Started(prompt_tokens=0, cached_tokens=0, seed=asked.sampling.seed or 0, gear=asked.gear)])
    return begun + answer.end_empty()


def frames_of(events: bytes) -> list[str]:
    """The events of a stream as frames: their data, without the framing of server-sent events."""
    return [event.partition("\ndata: ")[2] for event in events.decode().split("\n\n") if event]


def limits_frame(granted: Granted) -> str:
    """The state of the tank that a metered turn draws from, its own reservation left out."""
    drawn = next(tank for tank in granted.before() if tank.name == granted.turn.tank)
    windows = {
        place: LimitWindow(round(window.used_percent, 2), window.minutes, window.ends)
        for place, window in zip(("primary", "secondary"), drawn.windows, strict=False)
    }
    return msgspec.json.encode(LimitsEvent(windows)).decode()


def error_frame(error: WireError) -> str:
    """An error as a frame."""
    return msgspec.json.encode(ErrorFrame(error.status, error.object, error.headers)).decode()
