"""A client of a running server for those who measure: one turn as a stream of moments, texts and running counts.

Lean, since it often shares the processor with what it measures: an event is decoded into just the fields that are
needed. It retries nothing and hides nothing.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import httpx
import msgspec

from gearshift.catalog import GearName, service_tier_of

_CONNECT_S = 10.0
_MOST_ERROR_BYTES = 100_000


class Unreachable(Exception):
    """Nothing answers at the address, or it is no such server. The message says what to do."""


class Refused(Exception):
    """The server answered with an error object, at once or in the middle of a stream."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Ask:
    """One turn.

    Attributes:
        prompt: what the user says, or with `raw` the model's whole prompt.
        drafts: see `engine.protocol.Drafts`; cold by default, so that turns that are compared do not draft each other.
    """

    model: str
    prompt: str
    gear: GearName = "standard"
    raw: bool = False
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    prediction: str = ""
    drafts: Literal["off", "cold", "warm"] = "cold"
    ignore_eos: bool = False

    def body(self) -> bytes:
        """The request's body."""
        fields: dict[str, Any] = {
            "model": self.model,
            "service_tier": service_tier_of(self.gear),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "drafts": self.drafts,
            "ignore_eos": self.ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        if self.raw:
            fields["prompt"] = self.prompt
        else:
            fields["messages"] = [{"role": "user", "content": self.prompt}]
        if self.seed is not None:
            fields["seed"] = self.seed
        if self.stop:
            fields["stop"] = list(self.stop)
        if self.prediction:
            fields["prediction"] = {"type": "content", "content": self.prediction}
        return msgspec.json.encode(fields)


class GearWork(msgspec.Struct, frozen=True):
    """The gear that served, and the work so far (see `caller.Work`)."""

    gear: str
    steps: int = 0
    rows: int = 0
    drafted: int = 0
    kept: int = 0


class Counts(msgspec.Struct, frozen=True):
    """Running counts of a turn."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    gearshift: GearWork | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event brought.

    Attributes:
        at: `time.perf_counter()` when it had been read.
        text: of choice 0; may be empty.
        counts: as of this event; None when the server sends none.
        ending: why the answer is complete, in the event that says so.
    """

    at: float
    text: str
    counts: Counts | None
    ending: str | None = None


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Said | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Fault(msgspec.Struct):
    message: str


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Counts | None = None
    error: _Fault | None = None


class _Offered(msgspec.Struct):
    id: str


class _Offer(msgspec.Struct):
    data: list[_Offered]


_events = msgspec.json.Decoder(_Event)
_offers = msgspec.json.Decoder(_Offer)


class Client:
    """Speaks to one server; use it as a context. `key` is sent when given."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        headers = {"content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        # No limit on how long an answer may take: a loaded server is slow, and that is what is watched.
        timeout = httpx.Timeout(None, connect=_CONNECT_S)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        try:
            # The environment's proxies would come between a measurement and what it measures.
            self._http = httpx.AsyncClient(
                base_url=self.url, headers=headers, timeout=timeout, limits=limits, trust_env=False
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise Unreachable(f"{url!r} is no address ({error}); expected one like http://127.0.0.1:8000") from None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def models(self) -> list[str]:
        """The models on offer. Raises Unreachable and Refused."""
        with self._explained():
            response = await self._http.get("/v1/models")
        if response.status_code != 200:
            raise _refusal(response, response.content)
        try:
            return [one.id for one in _offers.decode(response.content).data]
        except msgspec.MsgspecError as error:
            raise Unreachable(f"What answers at {self.url} is no OpenAI-compatible server: {error}.") from None

    async def turn(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        """The pieces of one answer. Closing the generator, or cancelling its reader, ends the turn on the server.

        Raises:
            Unreachable: no connection, or it broke.
            Refused: an error object instead of an answer, or in the middle of it.
        """
        path = "/v1/completions" if ask.raw else "/v1/chat/completions"
        with self._explained():
            async with self._http.stream("POST", path, content=ask.body()) as response:
                if response.status_code != 200:
                    raise _refusal(response, (await response.aread())[:_MOST_ERROR_BYTES])
                events = _Lines()
                async for data in response.aiter_raw():
                    at = time.perf_counter()
                    for line in events.feed(data):
                        piece = _piece(line, at)
                        if piece is None:
                            return
                        yield piece
        raise Unreachable(f"The server at {self.url} ended a stream before its end.")

    async def drain(self, ask: Ask) -> None:
        """Run one turn and drop what comes."""
        async with aclosing(self.turn(ask)) as pieces:
            async for _ in pieces:
                pass

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise Unreachable(
                f"No server answers at {self.url}. Start one with `make serve`, or give its address with --url."
            ) from None
        except httpx.UnsupportedProtocol:
            raise Unreachable(f"{self.url!r} is no address; expected one like http://127.0.0.1:8000.") from None
        except httpx.TransportError as error:
            raise Unreachable(f"The connection to {self.url} broke: {error or type(error).__name__}.") from None


class _Lines:
    """Cuts a byte stream into the data of its events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _piece(line: bytes, at: float) -> Piece | None:
    """What a line of data says; None at the end of the stream."""
    if line == b"[DONE]":
        return None
    try:
        event = _events.decode(line)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"The server sent an event that cannot be read ({error}): {line[:200]!r}.") from None
    if event.error is not None:
        raise Refused(200, event.error.message)
    if not event.choices:
        return Piece(at, "", event.usage)
    choice = event.choices[0]
    text = choice.text if choice.delta is None else choice.delta.content
    return Piece(at, text or "", event.usage, choice.finish_reason)


def _refusal(response: httpx.Response, content: bytes) -> Refused:
    try:
        fault = _events.decode(content).error
    except msgspec.MsgspecError:
        fault = None
    message = fault.message if fault else f"HTTP {response.status_code}: {content[:200].decode(errors='replace')}"
    after = response.headers.get("retry-after", "")
    return Refused(response.status_code, message, float(after) if after.isdigit() else None)
