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
from gearshift.server.answers import JSON, Headers, encoded, send_bytes, send_error
from gearshift.server.body import Bodies, ClientLeft, read_json_body
from gearshift.server.departure import Departure
from gearshift.server.limits import Limits
from gearshift.server.merge import combined, merged
from gearshift.server.metrics import CLIENT_LEFT, Metrics
from gearshift.server.opening import Opening
from gearshift.server.repeating import Repeating
from gearshift.server.security import bearer
from gearshift.service import Service, Turn
from gearshift.wire.answer import Answer, Heading, Request
from gearshift.wire.errors import WireError, from_below
from gearshift.wire.limits import limit_headers

_log = logging.getLogger(__name__)

Reader = Callable[[bytes, Caller], Request]
"""Wire's reader of an endpoint's bodies, for the caller who sent one; raises WireError."""


class TurnEndpoint:
    """An ASGI application for one endpoint."""

    def __init__(
        self, name: str, read: Reader, service: Service, metrics: Metrics, bodies: Bodies, limits: Limits
    ) -> None:
        """name: the endpoint in metrics. bodies: those of all endpoints."""
        self._name = name
        self._read = read
        self._service = service
        self._metrics = metrics
        self._bodies = bodies
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived = time.perf_counter()
        status = CLIENT_LEFT
        try:
            with self._bodies.hold() as held, Repeating(self._service.repeats, send) as repeating:
                try:
                    caller = self._service.identify(bearer(scope))
                    body = await read_json_body(scope, receive, held)
                    request = self._read(body, caller)
                    if await repeating.begin(scope, caller, body):
                        status = 200
                        return
                except ClientLeft:
                    return
                except Exception as error:
                    status = await _refuse(send, error, {})
                    return
                turns = repeating.named([Turn(asked, caller) for asked in request.asked()])
                async with Departure(receive, repeating.send, self._limits.stalled_s) as departure:
                    status = await self._serve(request, turns, departure, arrived, codex=_from_codex(scope))
        finally:
            self._metrics.answered(self._name, status)

    async def _serve(
        self, request: Request, turns: Sequence[Turn], client: Departure, arrived: float, *, codex: bool
    ) -> int:
        """Run the turns of a request and write their answer; returns the status under which it counts."""
        headers = [(b"x-request-id", turns[0].id.encode())]
        journey = self._service.journey(turns[0]) if len(turns) == 1 else merged(self._service, turns)
        pace = Pace(self._metrics, arrived)
        opening = Opening(client, headers, self._limits, codex=codex) if request.stream else None
        answer: Answer | None = None

        def usage() -> Usage:
            return combined(turns)

        try:
            async with aclosing(journey) as batches:
                async for batch in batches:
                    if answer is None:
                        answer = request.answer(heading_of(turns[0], usage))
                        headers.extend(_limits(turns[0]))
                        if opening is not None:
                            await opening.finish()
                    written = answer.feed(batch)
                    pace.note(turns)
                    if written:
                        await client.send({"type": "http.response.body", "body": written, "more_body": True})
            assert answer is not None, "a journey ends with an answer or an error"
            last = answer.end()
        except (Exception, asyncio.CancelledError) as error:
            if client.left:
                raise
            problem = problem_of(error, request.fields())
            if opening is None or not opening.stop():
                return await _refuse(client.send, problem, {}, headers)
            answer = answer or request.answer(heading_of(turns[0], usage))
            await client.send({"type": "http.response.body", "body": answer.fail(problem)})
            return problem.status
        finally:
            if opening is not None:
                opening.stop()
        if request.stream:
            await client.send({"type": "http.response.body", "body": last})
        else:
            await send_bytes(client.send, last, status=200, headers=[JSON, *headers])
        return 200


class Pace:
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


def _from_codex(scope: Scope) -> bool:
    return any(name == b"x-codex-window-id" for name, _ in scope["headers"])


def heading_of(turn: Turn, usage: Callable[[], Usage]) -> Heading:
    """What an answer shows of a turn that is resolved."""
    assert turn.model is not None, "a turn is resolved before its engine is asked for anything"
    return Heading(turn_id=turn.id, created=int(time.time()), model=turn.model, usage=usage)


def _limits(turn: Turn) -> Headers:
    """The state of the tank that a metered turn draws from, and of the others."""
    if turn.booking is None:
        return []
    return encoded(limit_headers(turn.booking.granted, time.time()))


def problem_of(error: BaseException, names: Mapping[str, str]) -> WireError:
    """What the client is told of an error, or of being cut off."""
    if isinstance(error, Exception):
        problem = from_below(error, names)
        if problem.status == 500:
            _log.error("a turn failed", exc_info=error)
        return problem
    # Not the client's doing, so the server is going down and its patience is over.
    return WireError(503, "The server is shutting down.", code="shutting_down", kind="server_error", retry_after_s=5)


async def _refuse(send: Send, error: Exception, names: Mapping[str, str], headers: Headers = ()) -> int:
    problem = problem_of(error, names)
    await send_error(send, problem, headers=headers)
    return problem.status
