"""The journey of a turn ends in exactly one settlement with exact counts, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from gearshift.accounts import KeyRing, Unauthorized
from gearshift.caller import LOCAL, Caller, Usage, Work
from gearshift.conversation import RawText
from gearshift.engine.protocol import ContextOverflow, EngineFailure, Overloaded, Sampling
from gearshift.service import Asked, Service, Turn, UnknownModel
from tests.scripted import WORDS, ScriptedEngine

Settled = list[tuple[str, Caller, Usage]]


def ask(prompt: str = "a b c", model: str = "scripted", *, n: int = 1) -> Turn:
    return Turn(Asked(model, RawText(prompt), Sampling(n=n)), LOCAL)


def run(scene: Callable[[Service, ScriptedEngine], Awaitable[None]], *, slots: int = 32) -> Settled:
    """Play a scene; returns what was settled."""
    settled: Settled = []

    def settle(turn_id: str, caller: Caller, usage: Usage) -> None:
        settled.append((turn_id, caller, usage))

    async def play() -> None:
        scripted = ScriptedEngine(slots=slots)
        await scene(Service([scripted], KeyRing(), settle), scripted)
        assert scripted.running == scripted.waiting == 0

    asyncio.run(play())
    return settled


def test_a_turn_that_ends_by_itself() -> None:
    turn = ask(n=2)

    async def scene(service: Service, engine: ScriptedEngine) -> None:
        async for _ in service.journey(turn):
            pass

    assert run(scene) == [(turn.id, LOCAL, Usage(3, 2, 20, "finished", Work(20, 20)))]


def test_drafts_are_counted_while_a_turn_runs_and_exactly_at_its_end() -> None:
    asked = Asked("scripted", RawText("drafts"), Sampling(max_tokens=6), "ultrafast", prediction="Gears change")
    turn = Turn(asked, LOCAL)
    running: list[Work] = []

    async def scene(service: Service, engine: ScriptedEngine) -> None:
        async for _ in service.journey(turn):
            running.append(turn.usage.work)
        assert engine.seen[0].prediction == "Gears change"

    ((_, _, usage),) = run(scene)
    # Two tokens a step. Rows whose drafts were not kept are known at the end.
    assert running == [Work(), *(Work(step, 2 * step, step, step) for step in (1, 2, 3)), Work(3, 12, 9, 3)]
    assert usage == Usage(1, 1, 6, "finished", Work(3, 12, 9, 3), "ultrafast", predicted=True)


def test_a_turn_that_is_closed_midway_counts_what_was_handed_over() -> None:
    turn = ask()

    async def scene(service: Service, engine: ScriptedEngine) -> None:
        async with aclosing(service.journey(turn)) as batches:
            for _ in range(4):
                await anext(batches)

    assert run(scene) == [(turn.id, LOCAL, Usage(3, 2, 3, "cancelled", Work(3, 3)))]


def test_a_turn_whose_task_is_cancelled() -> None:
    turn = ask("forever")

    async def scene(service: Service, engine: ScriptedEngine) -> None:
        async def read() -> None:
            async for _ in service.journey(turn):
                pass

        task = asyncio.create_task(read())
        while turn.produced < 5:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    ((_, _, usage),) = run(scene)
    assert usage == Usage(1, 1, turn.produced, "cancelled", Work(turn.produced, turn.produced))


def test_a_turn_that_is_cancelled_while_it_queues() -> None:
    turn = ask()

    async def scene(service: Service, engine: ScriptedEngine) -> None:
        async def read() -> None:
            async for _ in service.journey(turn):
                pass

        async with aclosing(service.journey(ask("forever"))) as holder:
            await anext(holder)
            task = asyncio.create_task(read())
            while not engine.waiting:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert engine.waiting == 0

    settled = run(scene, slots=1)
    assert settled[0] == (turn.id, LOCAL, Usage(0, 0, 0, "cancelled"))
    assert len(settled) == 2


@pytest.mark.parametrize(
    ("prompt", "error", "produced"),
    [
        ("overload", Overloaded, 0),
        ("break-early", EngineFailure, 0),
        ("break-late", EngineFailure, 3),
        ("word " * 100, ContextOverflow, 0),
    ],
)
def test_a_turn_that_fails(prompt: str, error: type[Exception], produced: int) -> None:
    turn = ask(prompt)

    async def scene(service: Service, engine: ScriptedEngine) -> None:
        with pytest.raises(error):
            async for _ in service.journey(turn):
                pass

    ((turn_id, _, usage),) = run(scene)
    assert turn_id == turn.id
    assert (usage.completion_tokens, usage.ending) == (produced, "failed")


def test_a_turn_of_no_model_never_begins() -> None:
    async def scene(service: Service, engine: ScriptedEngine) -> None:
        with pytest.raises(UnknownModel, match="Available: scripted"):
            await anext(service.journey(ask(model="nobody")))

    assert run(scene) == []


def test_an_alias_leads_to_the_model() -> None:
    turn = ask(model="other")

    async def scene(service: Service, engine: ScriptedEngine) -> None:
        async for _ in service.journey(turn):
            pass
        assert engine.seen[0].model == "scripted"

    assert len(run(scene)) == 1


def test_a_broken_hook_does_not_cost_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    def broken(turn_id: str, caller: Caller, usage: Usage) -> None:
        raise OSError("disk full")

    async def play() -> int:
        return len([batch async for batch in Service([ScriptedEngine()], KeyRing(), broken).journey(ask())])

    assert asyncio.run(play()) == len(WORDS) + 2
    assert "settling turn" in caplog.text


def test_keys_open_a_closed_server_only() -> None:
    assert Service([], KeyRing(), print).identify(None) == LOCAL
    service = Service([], KeyRing.from_text("one, two"), print)
    assert service.identify("one") != service.identify("two")
    assert service.identify("one").cache_scope != LOCAL.cache_scope
    for wrong in (None, "", "on", "one ", "ONE", "\udcff"):
        with pytest.raises(Unauthorized):
            service.identify(wrong)


def test_keys_are_not_kept() -> None:
    ring = KeyRing(["very-secret"])
    assert "very-secret" not in repr(vars(ring))
