"""What is said on one WebSocket: requests come as frames and are answered one after the other, each by the events of
its turn. The peer may leave, interrupt or fall silent at any time; a turn whose peer is gone ends at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass

from starlette.types import Message, Receive, Send

from gearshift.caller import Caller
from gearshift.server.body import Bodies
from gearshift.server.limits import Limits
from gearshift.server.metrics import CLIENT_LEFT, Metrics
from gearshift.server.pulse import Pulse
from gearshift.server.recall import ConnectionMemory
from gearshift.server.socket_protocol import STOPPING
from gearshift.server.turns import Pace, heading_of, problem_of
from gearshift.service import Asked, Service, Turn
from gearshift.wire.errors import WireError, from_below, invalid
from gearshift.wire.responses_answer import ResponseStream
from gearshift.wire.websocket import (
    CREATE,
    IGNORED,
    INTERRUPT,
    CreateCall,
    error_frame,
    frames_of,
    limits_frame,
    read_create,
    read_head,
    warmed_up,
)

_log = logging.getLogger(__name__)

_GOING_AWAY = 1001
_DONE = 1000
_PREFILL_PATIENCE_S = 1.0
_ENDPOINT = "websocket"


@dataclass(slots=True)
class _Frame:
    """A request that waits, and the room that it takes."""

    text: str
    arrived: float
    room: ExitStack


class Conversing:
    """One accepted WebSocket."""

    def __init__(
        self,
        caller: Caller,
        memory: ConnectionMemory,
        service: Service,
        metrics: Metrics,
        bodies: Bodies,
        limits: Limits,
        receive: Receive,
        send: Send,
    ) -> None:
        self._caller = caller
        self._memory = memory
        self._service = service
        self._metrics = metrics
        self._bodies = bodies
        self._limits = limits
        self._receive = receive
        self._pulse = Pulse(send, limits)
        self._frames: deque[_Frame] = deque()
        self._news = asyncio.Event()
        self._left = False
        self._stopping = False
        self._prefill: asyncio.Task[None] | None = None
        self._streaming: asyncio.Task[None] | None = None
        self._answer: ResponseStream | None = None
        self._answering = ""
        self._interrupted = False

    async def run(self) -> None:
        """Until one side ends it."""
        tasks = [
            asyncio.create_task(self._read()),
            asyncio.create_task(self._work()),
            asyncio.create_task(self._pulse.run()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._left = tasks[1] not in done
        finally:
            for task in (*tasks, self._prefill):
                if task is not None:
                    task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, OSError):
                    _log.error("a WebSocket broke", exc_info=result)
            await self._stop_prefill()
            for frame in self._frames:
                frame.room.close()

    # --- what comes ---

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._left = True
                return
            if message["type"] == STOPPING:
                self._stopping = True
                self._news.set()
            else:
                await self._take(message)

    async def _take(self, message: Message) -> None:
        text = message.get("text")
        try:
            if text is None:
                raise invalid("Expected a text frame with a JSON object, got a binary frame.")
            head = read_head(text)
            if head.type == CREATE:
                self._queue(text)
            elif head.type == INTERRUPT:
                self._interrupt(head.response_id)
            elif head.type not in IGNORED:
                raise invalid(f"Expected a frame of type {CREATE!r} or {INTERRUPT!r}, got {head.type[:100]!r}.", "type")
        except WireError as error:
            self._metrics.answered(_ENDPOINT, error.status)
            await self._pulse.send(error_frame(error))

    def _queue(self, text: str) -> None:
        """Raises WireError: too many requests wait here, or too many bytes in all requests together."""
        if len(self._frames) >= self._limits.frames:
            message = f"{len(self._frames)} requests wait on this connection already. Wait for their answers."
            raise WireError(429, message, code="too_many_requests", kind="rate_limit_error", retry_after_s=1)
        room = ExitStack()
        try:
            room.enter_context(self._bodies.hold()).add(len(text))
        except WireError:
            room.close()
            raise
        self._frames.append(_Frame(text, time.perf_counter(), room))
        self._news.set()

    def _interrupt(self, response_id: str | None) -> None:
        """Stop the response of this id; one that is not under way has ended already, or never began."""
        if self._streaming is not None and self._answering and self._answering == response_id:
            self._interrupted = True
            self._streaming.cancel()

    # --- what is done ---

    async def _work(self) -> None:
        ends = asyncio.get_running_loop().time() + self._limits.socket_s
        while not self._stopping:
            if asyncio.get_running_loop().time() >= ends:
                await self._pulse.send(error_frame(_too_old(self._limits.socket_s)))
                await self._pulse.close(_DONE)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout_at(ends):
                    await self._news.wait()
                if self._frames:
                    await self._serve(self._frames.popleft())
                else:
                    self._news.clear()
        await self._pulse.close(_GOING_AWAY)

    async def _serve(self, frame: _Frame) -> None:
        """Answer one request, whatever comes of it."""
        status = CLIENT_LEFT
        try:
            with frame.room, self._pulse.busy():
                call = read_create(frame.text, self._memory)
                frame.text = ""
                await self._finish_prefill()
                if call.warm_up:
                    await self._warm_up(call)
                    status = 200
                else:
                    (asked,) = call.asked()
                    status = await self._turn(call, Turn(asked, self._caller), frame.arrived)
        except WireError as error:
            status = error.status
            await self._pulse.send(error_frame(error))
        finally:
            self._metrics.answered(_ENDPOINT, status)

    async def _turn(self, call: CreateCall, turn: Turn, arrived: float) -> int:
        """Run a turn and send its events; returns the status under which it counts. Raises WireError before any."""
        self._answer, self._interrupted = None, False
        self._streaming = asyncio.create_task(self._stream(call, turn, arrived))
        status = 200
        try:
            await self._streaming
            self._answering = ""
            assert self._answer is not None, "a journey ends with an answer or an error"
            last = self._answer.end()
        except (Exception, asyncio.CancelledError) as error:
            if self._left:
                raise
            if self._interrupted and self._answer is not None:
                last = self._answer.interrupt()
            else:
                problem = problem_of(error, call.fields())
                if self._answer is None:
                    raise problem from error
                status, last = problem.status, self._answer.fail(problem)
        finally:
            self._streaming, self._answering = None, ""
        await self._events(last)
        return status

    async def _stream(self, call: CreateCall, turn: Turn, arrived: float) -> None:
        pace = Pace(self._metrics, arrived)
        async with aclosing(self._service.journey(turn)) as batches:
            async for batch in batches:
                if self._answer is None:
                    self._answer = call.stream_answer(heading_of(turn, lambda: turn.usage))
                    self._answering = self._answer.response_id
                    if turn.booking is not None:
                        await self._pulse.send(limits_frame(turn.booking.granted))
                written = self._answer.feed(batch)
                pace.note([turn])
                await self._events(written)

    async def _events(self, written: bytes) -> None:
        for frame in frames_of(written):
            await self._pulse.send(frame)

    # --- warming up ---

    async def _warm_up(self, call: CreateCall) -> None:
        """Answer at once, and read the conversation into the cache meanwhile: the user is still typing."""
        (asked,) = call.asked()
        turn = Turn(asked, self._caller)
        try:
            _, turn.model = self._service.resolve(asked.model)
        except Exception as error:
            raise from_below(error, call.fields()) from error
        events = warmed_up(call, heading_of(turn, lambda: turn.usage))
        if not call.empty:
            self._prefill = asyncio.create_task(self._read_ahead(call.prefill()))
        await self._events(events)

    async def _read_ahead(self, asked: Asked) -> None:
        # What is wrong with it, or in its way, the turn that follows is told.
        with suppress(Exception):
            async with aclosing(self._service.journey(Turn(asked, self._caller))) as batches:
                async for _ in batches:
                    pass

    async def _finish_prefill(self) -> None:
        """Let it end: the turn that follows would have to compute the same. When that takes long, the turn goes on with
        it itself; the steps that are done are found in the cache."""
        if self._prefill is not None:
            await asyncio.wait((self._prefill,), timeout=_PREFILL_PATIENCE_S)
        await self._stop_prefill()

    async def _stop_prefill(self) -> None:
        if self._prefill is not None:
            self._prefill.cancel()
            await asyncio.gather(self._prefill, return_exceptions=True)
            self._prefill = None


def _too_old(socket_s: float) -> WireError:
    return WireError(
        400,
        f"This connection is {socket_s / 60:g} minutes old, which is as long as one may last. Open another.",
        code="websocket_connection_limit_reached",
    )
