"""Mailboxes: one call per step and event loop, batches that merge for slow readers, loops that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gearshift.engine import Delta, EngineEvent, EngineFailure
from gearshift.engine.local.mailbox import Mailbox, post


def delta(number: int) -> EngineEvent:
    return Delta(0, str(number), (number,))


def test_a_step_of_many_turns_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        boxes = [Mailbox(loop) for _ in range(32)]
        calls: list[Callable[..., Any]] = []
        original = loop.call_soon_threadsafe

        def counted(callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
            calls.append(callback)
            return original(callback, *args)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        readers = [asyncio.create_task(box.take()) for box in boxes]
        await asyncio.sleep(0)
        assert post([(box, [delta(i)], None) for i, box in enumerate(boxes)]) == []
        assert [list(events) for events in await asyncio.gather(*readers)] == [[delta(i)] for i in range(32)]
        assert len(calls) == 1

    asyncio.run(test())


def test_a_slow_reader_gets_several_steps_at_once_and_then_the_failure() -> None:
    async def test() -> None:
        box = Mailbox(asyncio.get_running_loop())
        post([(box, [delta(1)], None)])
        post([(box, [delta(2), delta(3)], None)])
        post([(box, [], EngineFailure("broken"))])
        await asyncio.sleep(0)
        assert list(await box.take()) == [delta(1), delta(2), delta(3)]
        for _ in range(2):
            with pytest.raises(EngineFailure, match="broken"):
                await box.take()

    asyncio.run(test())


def test_a_reader_that_stopped_waiting_may_wait_again() -> None:
    async def test() -> None:
        box = Mailbox(asyncio.get_running_loop())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(box.take(), 0.01)
        box.put([delta(1)], None)
        assert list(await box.take()) == [delta(1)]

    asyncio.run(test())


def test_mailboxes_of_a_closed_loop_are_told() -> None:
    closed = asyncio.new_event_loop()
    closed.close()

    async def test() -> None:
        dead, alive = Mailbox(closed), Mailbox(asyncio.get_running_loop())
        assert post([(dead, [delta(1)], None), (alive, [delta(2)], None)]) == [dead]
        assert list(await alive.take()) == [delta(2)]

    asyncio.run(test())
