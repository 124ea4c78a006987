"""Several turns as one stream of batches, for the one kind of request that holds several prompts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from gearshift.caller import NO_WORK, Usage
from gearshift.engine.protocol import EngineEvent, Started
from gearshift.service import Service, Turn

_Batch = Sequence[EngineEvent]


async def merged(service: Service, turns: Sequence[Turn]) -> AsyncGenerator[_Batch, None]:
    """Run all turns at once; choices of a later turn are numbered after those of the earlier ones.

    The first failure ends them all and is raised. A turn goes on only when its last batch was taken, so that none
    runs ahead of the others and nothing is buffered beyond one batch of each.
    """
    waiting: asyncio.Queue[tuple[_Batch | Exception | None, asyncio.Event]] = asyncio.Queue()

    async def pump(turn: Turn, first_choice: int) -> None:
        taken = asyncio.Event()
        try:
            async with aclosing(service.journey(turn)) as journey:
                async for batch in journey:
                    taken.clear()
                    waiting.put_nowait(([_numbered(event, first_choice) for event in batch], taken))
                    await taken.wait()
        except Exception as error:
            waiting.put_nowait((error, taken))
        else:
            waiting.put_nowait((None, taken))

    pumps: list[asyncio.Task[None]] = []
    first_choice = 0
    for turn in turns:
        pumps.append(asyncio.create_task(pump(turn, first_choice)))
        first_choice += turn.asked.sampling.n
    try:
        running = len(pumps)
        while running:
            batch, taken = await waiting.get()
            if isinstance(batch, Exception):
                raise batch
            if batch is None:
                running -= 1
            else:
                yield batch
            taken.set()
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


def combined(turns: Sequence[Turn]) -> Usage:
    """The counts of all turns together; the gear, and how it ended, are those of the first."""
    if len(turns) == 1:
        return turns[0].usage
    usages = [turn.usage for turn in turns]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        ending=usages[0].ending,
        work=sum((usage.work for usage in usages), NO_WORK),
        gear=usages[0].gear,
        predicted=usages[0].predicted,
    )


def _numbered(event: EngineEvent, first_choice: int) -> EngineEvent:
    return event if isinstance(event, Started) else replace(event, choice=event.choice + first_choice)
