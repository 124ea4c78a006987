"""The loop thread: takes messages, and steps every lane that has work; one thread for all models of a process.

It sleeps while there is nothing to do. Other threads talk to it by messages only and may read its counters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gearshift.engine.local.lane import Lane, Timed
from gearshift.engine.local.mailbox import Letter, post
from gearshift.engine.local.scheduler import BLOCK_TOKENS
from gearshift.engine.local.sequence import Turn
from gearshift.engine.protocol import EngineFailure, EngineStatus, Overloaded

_KEPT_STEPS = 10_000
_KEPT_ENDINGS = 64
_RETRY_UNKNOWN_S = 5.0
_RETRY_LEAST_S, _RETRY_MOST_S = 1.0, 120.0
_log = logging.getLogger(__name__)


class Loop:
    """Runs lanes until it is closed."""

    def __init__(self, lanes: Sequence[Lane], max_waiting: int) -> None:
        self._lanes = tuple(lanes)
        self._max_waiting = max_waiting
        self._messages: deque[Callable[[], None]] = deque()
        self._submitted = 0
        self._wake = threading.Condition()
        self._closed = False
        self._ended: str | None = None
        self._turns: dict[Turn, Lane] = {}
        self._steps = 0
        self._step_seconds: deque[float] = deque(maxlen=_KEPT_STEPS)
        self._step_rows: deque[int] = deque(maxlen=_KEPT_STEPS)
        self._endings: deque[float] = deque(maxlen=_KEPT_ENDINGS)
        self._thread = threading.Thread(target=self._run, name="gearshift-loop", daemon=True)
        self._thread.start()

    # --- for other threads ---

    def submit(self, lane: Lane, turn: Turn) -> None:
        """Hand a turn to the loop. Raises Overloaded when the queue is full, EngineFailure when the loop is closed."""
        with self._wake:
            if self._closed or self._ended:
                raise EngineFailure(self._ended or "the engine was closed")
            waiting = self._submitted + self._waiting()
            if waiting + turn.sampling.n > self._max_waiting + lane.seats.free:
                raise Overloaded(f"{waiting} turns are waiting already; try again later", self._retry_after_s(waiting))
            self._submitted += turn.sampling.n
            self._messages.append(lambda: self._add(lane, turn))
            self._wake.notify()

    def cancel(self, turn: Turn) -> None:
        """End a turn early; nothing happens when it is complete."""
        with self._wake:
            self._messages.append(lambda: self._cancel(turn))
            self._wake.notify()

    def resume(self, turn: Turn) -> None:
        """A turn that was paused for its reader may go on."""
        with self._wake:
            self._messages.append(lambda: self._resume(turn))
            self._wake.notify()

    def close(self) -> None:
        """Fail all turns and end the thread; returns when it has ended."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def status(self) -> EngineStatus:
        """Counters; step durations since the last call."""
        tokens = [(lane.pool.total - lane.pool.free, lane.pool.total) for lane in self._lanes]
        return EngineStatus(
            running=sum(len(lane.seated) for lane in self._lanes),
            waiting=self._submitted + self._waiting(),
            cache_tokens_used=sum(used for used, _ in tokens) * BLOCK_TOKENS,
            cache_tokens_total=sum(total for _, total in tokens) * BLOCK_TOKENS,
            steps=self._steps,
            step_seconds=_drain(self._step_seconds),
            step_rows=_drain(self._step_rows),
            preempted=sum(lane.preempted for lane in self._lanes),
        )

    def _waiting(self) -> int:
        return sum(len(lane.waiting) for lane in self._lanes)

    def _retry_after_s(self, waiting: int) -> float:
        """How long the queue takes to drain at the rate at which turns ended lately."""
        if len(self._endings) < 2:
            return _RETRY_UNKNOWN_S
        per_s = (len(self._endings) - 1) / max(self._endings[-1] - self._endings[0], 1e-3)
        return min(max(waiting / per_s, _RETRY_LEAST_S), _RETRY_MOST_S)

    # --- the thread ---

    def _run(self) -> None:
        try:
            while self._take_messages():
                now = time.monotonic()
                for lane in self._lanes:
                    if lane.waiting and (late := lane.expire(now)):
                        self._emit(late)
                    step = lane.schedule()
                    if step.rows:
                        timed = lane.run(step)
                        told = lane.commit(timed)
                        self._count(timed)
                        self._emit(told)
            self._fail_all("the engine was closed")
        except Exception as error:
            _log.exception("the engine's loop broke")
            self._fail_all(f"the engine broke: {error!r}")

    def _take_messages(self) -> bool:
        """Sleep until there is work, then take what others asked for. False when the loop is closed."""
        with self._wake:
            while not (self._messages or self._closed or any(lane.busy for lane in self._lanes)):
                self._wake.wait()
            messages, self._messages = self._messages, deque[Callable[[], None]]()
            self._submitted = 0
        for message in messages:
            message()
        return not self._closed

    def _add(self, lane: Lane, turn: Turn) -> None:
        turn.arrived = time.monotonic()
        self._turns[turn] = lane
        lane.add(turn)

    def _cancel(self, turn: Turn) -> None:
        lane = self._turns.pop(turn, None)
        if lane is not None:
            lane.cancel(turn)

    def _resume(self, turn: Turn) -> None:
        lane = self._turns.get(turn)
        if lane is not None:
            lane.resume(turn)

    def _emit(self, turns: Iterable[Turn]) -> None:
        """Send what the turns have to tell, all of a step at once; forget those that are complete."""
        letters: list[Letter] = []
        for turn in turns:
            letters.append((turn.mailbox, turn.outbox, turn.failure))
            turn.outbox = []
            if not turn.open or turn.failure:
                self._turns.pop(turn, None)
                self._endings.append(time.monotonic())
        dead = post(letters) if letters else ()
        if dead:
            for turn in [turn for turn in self._turns if turn.mailbox in dead]:
                self._cancel(turn)

    def _count(self, timed: Timed) -> None:
        self._steps += 1
        self._step_seconds.append(timed.seconds)
        self._step_rows.append(timed.step.rows)

    def _fail_all(self, reason: str) -> None:
        with self._wake:
            self._ended = reason
            messages, self._messages = self._messages, deque[Callable[[], None]]()
        for message in messages:
            message()
        turns = list(self._turns)
        for turn in turns:
            turn.failure = EngineFailure(reason)
        self._turns.clear()
        post([(turn.mailbox, turn.outbox, turn.failure) for turn in turns])


def _drain(values: deque[Any]) -> tuple[Any, ...]:
    """Everything that another thread appended so far."""
    return tuple(values.popleft() for _ in range(len(values)))
