"""One endpoint that serves turns: takes a request in, writes the answer as its events come, and lets go of the turn the
moment the client leaves. It serves any wire format; the format's own rules are in `gearshift.wire`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing

from starlette.types import Receive, Scope, Send

from gearshift.caller import Caller, Usage
from gearshift.server.answers import JSON, Headers, send_bytes, send_error
from gearshift.server.body import ClientLeft, read_json_body
from gearshift.server.departure import Departure
from gearshift.server.merge import combined, merged
from gearshift.server.metrics import CLIENT_LEFT, Metrics
from gearshift.server.security import bearer
from gearshift.service import Service, Turn
from gearshift.wire.answer import Answer, Heading, Request
from gearshift.wire.errors import WireError, from_below

_log = logging.getLogger(__name__)

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Proxies that buffer would turn a stream into a lump.
    (b"x-accel-buffering", b"no"),
)

Reader = Callable[[bytes], Request]
"""Wire's reader of an endpoint's bodies; raises WireError."""


class TurnEndpoint:
    """An ASGI application for one endpoint."""

    def __init__(self, name: str, read: Reader, service: Service, metrics: Metrics, stalled_s: float) -> None:
        """name: the endpoint in metrics. stalled_s: see `departure`."""
        self._name = name
        self._read = read
        self._service = service
        self._metrics = metrics
        self._stalled_s = stalled_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived = time.perf_counter()
        status = CLIENT_LEFT
        try:
            try:
                caller = self._service.identify(bearer(scope))
                request = self._read(await read_json_body(scope, receive))
            except ClientLeft:
                return
            except Exception as error:
                status = await _refuse(send, error, {})
                return
            async with Departure(receive, send, self._stalled_s) as departure:
                status = await self._serve(request, caller, departure, arrived)
        finally:
            self._metrics.answered(self._name, status)

    async def _serve(self, request: Request, caller: Caller, client: Departure, arrived: float) -> int:
        """Run the turns of a request and write their answer; returns the status under which it counts."""
        turns = [Turn(asked, caller) for asked in request.asked()]
        headers = [(b"x-request-id", turns[0].id.encode())]
        journey = self._service.journey(turns[0]) if len(turns) == 1 else merged(self._service, turns)
        pace = _Pace(self._metrics, arrived)
        answer: Answer | None = None

        def usage() -> Usage:
            return combined(turns)

        try:
            async with aclosing(journey) as batches:
                async for batch in batches:
                    if answer is None:
                        answer = request.answer(_heading(turns[0], usage))
                        if request.stream:
                            await _begin_stream(client.send, headers)
                    written = answer.feed(batch)
                    pace.note(turns)
                    if written:
                        await client.send({"type": "http.response.body", "body": written, "more_body": True})
            assert answer is not None, "a journey ends with an answer or an error"
            last = answer.end()
        except (Exception, asyncio.CancelledError) as error:
            if client.left:
                raise
            problem = _problem(error, request.fields())
            if answer is None or not request.stream:
                return await _refuse(client.send, problem, {}, headers)
            await client.send({"type": "http.response.body", "body": answer.fail(problem)})
            return problem.status
        if request.stream:
            await client.send({"type": "http.response.body", "body": last})
        else:
            await send_bytes(client.send, last, status=200, headers=[JSON, *headers])
        return 200


class _Pace:
    """Measures the times that a client feels."""

    def __init__(self, metrics: Metrics, arrived: float) -> None:
        self._metrics = metrics
        self._last = arrived
        self._tokens = 0

    def note(self, turns: Sequence[Turn]) -> None:
        """A write is about to leave."""
        tokens = turns[0].produced if len(turns) == 1 else sum(turn.produced for turn in turns)
        fresh = tokens - self._tokens
        if not fresh:
            return
        now = time.perf_counter()
        if self._tokens:
            self._metrics.between_tokens.observe((now - self._last) / fresh)
        else:
            self._metrics.first_token[turns[0].gear].observe(now - self._last)
        self._tokens = tokens
        self._last = now


def _heading(turn: Turn, usage: Callable[[], Usage]) -> Heading:
    assert turn.model is not None, "a turn that yields events has been resolved"
    return Heading(turn_id=turn.id, created=int(time.time()), model=turn.model, usage=usage)


def _problem(error: BaseException, names: Mapping[str, str]) -> WireError:
    if isinstance(error, Exception):
        problem = from_below(error, names)
        if problem.status == 500:
            _log.error("a turn failed", exc_info=error)
        return problem
    # Not the client's doing, so the server is going down and its patience is over.
    return WireError(503, "The server is shutting down.", code="shutting_down", kind="server_error", retry_after_s=5)


async def _begin_stream(send: Send, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [*_STREAM_HEADERS, *headers]})


async def _refuse(send: Send, error: Exception, names: Mapping[str, str], headers: Headers = ()) -> int:
    problem = _problem(error, names)
    await send_error(send, problem, headers=headers)
    return problem.status
