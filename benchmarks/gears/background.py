"""The load: streams that never end, each on a prompt of its own, while other turns are measured beside them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import count
from types import TracebackType

from benchmarks.engine.arms.timeline import Timeline
from benchmarks.engine.plans import CONTEXT
from benchmarks.engine.prompts import prompt_ids
from gearshift.caller import Caller
from gearshift.catalog import GearName
from gearshift.conversation import Prompt, RawTokens
from gearshift.engine.local.engine import LocalEngine
from gearshift.engine.protocol import Delta, Drafts, Generation, Sampling

_SETTLING_S = 0.15
"""After the last stream had its first token."""
_ENDING_POLLS = 400
_LOAD = Caller("load", "load")
"""One caller, so that the prompts are found in the cache when the load starts again."""

_numbers = count(1)


def made_up(key: int) -> Prompt:
    """A prompt of pseudo-random tokens that shares nothing with any other."""
    return RawTokens(tuple(prompt_ids(CONTEXT, key)))


class Background:
    """Streams that run while the block runs; a stream that reaches the window starts again with another prompt.

    Attributes:
        timelines: arrivals of each stream.
    """

    def __init__(
        self,
        engine: LocalEngine,
        streams: int,
        gear: GearName = "standard",
        drafts: Drafts = "off",
        temperature: float = 0.0,
        prompt_of: Callable[[int], Prompt] = made_up,
    ) -> None:
        self.timelines = [Timeline() for _ in range(streams)]
        self._engine = engine
        self._gear: GearName = gear
        self._drafts: Drafts = drafts
        self._temperature = temperature
        self._prompt_of = prompt_of
        self._all_run = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Background:
        self._tasks = [asyncio.create_task(self._stream(at)) for at in range(len(self.timelines))]
        if self._tasks:
            started = asyncio.create_task(self._all_run.wait())
            await asyncio.wait([started, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            started.cancel()
            await asyncio.sleep(_SETTLING_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception) and error is None:
                raise ended
        for _ in range(_ENDING_POLLS):  # a step may still run, and a probe must not run beside it
            if not self._engine.status().running:
                return
            await asyncio.sleep(0.005)

    async def window(self, seconds: float) -> tuple[float, float]:
        """Let the streams run by themselves; begin and end of that time."""
        begin = time.perf_counter()
        await asyncio.sleep(seconds)
        return begin, time.perf_counter()

    async def _stream(self, at: int) -> None:
        key, timeline = at, self.timelines[at]
        while True:
            generation = Generation(
                turn_id=f"load-{next(_numbers)}",
                model=self._engine.models()[0].id,
                prompt=self._prompt_of(key),
                sampling=Sampling(temperature=self._temperature, seed=key, ignore_eos=True),
                caller=_LOAD,
                gear=self._gear,
                drafts=self._drafts,
            )
            stream = self._engine.generate(generation)
            try:
                async for batch in stream:
                    arrived = sum(len(event.token_ids) for event in batch if isinstance(event, Delta))
                    if arrived:
                        timeline.arrived(time.perf_counter(), arrived)
                        if not self._all_run.is_set() and all_run(self.timelines):
                            self._all_run.set()
            finally:
                await stream.aclose()
            key += len(self.timelines)


def all_run(timelines: Sequence[Timeline]) -> bool:
    """Whether every stream had a token."""
    return all(each.moments for each in timelines)
