"""The engine with its loop thread around a stand-in kernel: streams, queues, cancellation, failures, closing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, ClassVar

import pytest

from gearshift.caller import LOCAL, Caller, Work
from gearshift.catalog import GearName, ModelEntry
from gearshift.conversation import Prompt, RawText, RawTokens
from gearshift.engine import (
    ChoiceEnd,
    ContextOverflow,
    Delta,
    Engine,
    EngineEvent,
    EngineFailure,
    Generation,
    InvalidGeneration,
    Overloaded,
    Sampling,
    Started,
)
from gearshift.engine.local.batch import Batch, Chosen
from gearshift.engine.local.engine import LocalEngine, ServedModel
from gearshift.engine.local.lane import Lane, LaneLimits
from tests.engine.local.stand_in import GRAMMARS, PIECES, VOCABULARY, PlainRenderer, StandIn, answer, told

CONTEXT = 512
GREEDY = Sampling(temperature=0.0, ignore_eos=True, max_tokens=20)


class Gate:
    """Lets a kernel run only while it is open, so that a test decides what is under way."""

    def __init__(self, kernel: StandIn) -> None:
        self.kernel = kernel
        self.opened = threading.Event()
        self.opened.set()
        self.entered = threading.Event()

    def __call__(self, batch: Batch) -> Chosen:
        self.entered.set()
        assert self.opened.wait(30)
        return self.kernel(batch)


def served(name: str, kernel: Callable[[Batch], Chosen], blocks: int, seats: int) -> ServedModel:
    entry = ModelEntry(name, CONTEXT, chat=False, created=0, owner="tests")
    lane = Lane(name, kernel, VOCABULARY, LaneLimits(seats, blocks, CONTEXT, 256, stall_s=0.1))
    return ServedModel(entry, name, 1, PlainRenderer(), lane, GRAMMARS)


@asynccontextmanager
async def engine_of(
    kernel: Callable[[Batch], Chosen], blocks: int = 200, seats: int = 4, max_waiting: int = 100
) -> AsyncGenerator[LocalEngine, None]:
    engine = LocalEngine([served("m", kernel, blocks, seats)], max_waiting)
    try:
        yield engine
        lane = engine._models["m"].lane  # pyright: ignore[reportPrivateUsage]
        for _ in range(500):
            if not lane.busy:
                break
            await asyncio.sleep(0.01)
        lane.pool.audit()
        assert lane.pool.free == lane.pool.total, "blocks are still held"
        assert lane.seats.free == seats
    finally:
        await engine.close()


def generation(
    prompt: Prompt | list[int],
    sampling: Sampling = GREEDY,
    caller: Caller = LOCAL,
    gear: GearName = "standard",
    echo: bool = False,
    model: str = "m",
) -> Generation:
    return Generation(
        "turn", model, RawTokens(tuple(prompt)) if isinstance(prompt, list) else prompt, sampling, caller, gear, echo
    )


async def collect(engine: Engine, wanted: Generation) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    async with aclosing(engine.generate(wanted)) as batches:
        async for batch in batches:
            assert batch, "an empty batch"
            events.extend(batch)
    return events


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def test_a_turn_streams_its_answer() -> None:
    async def test() -> None:
        async with engine_of(StandIn(200)) as engine:
            events = told(await collect(engine, generation([5, 6, 7])))
            assert events.started == Started(3, 0, events.started.seed, "standard")
            assert events.tokens[0] == answer([5, 6, 7], GREEDY, 20)
            assert events.ends[0] == ChoiceEnd(0, "length", 20, work=Work(steps=20, rows=20))

    run(test())


def test_200_turns_at_once_on_32_seats() -> None:
    async def test() -> None:
        async with engine_of(StandIn(600), blocks=600, seats=32, max_waiting=200) as engine:
            prompts = [[1 + i % 15, 1 + i // 15] for i in range(200)]
            results = await asyncio.gather(*(collect(engine, generation(prompt)) for prompt in prompts))
            for prompt, events in zip(prompts, results, strict=True):
                assert told(events).tokens[0] == answer(prompt, GREEDY, 20)

    run(test())


def test_a_full_queue_says_when_to_come_back() -> None:
    async def test() -> None:
        gate = Gate(StandIn(200))
        async with engine_of(gate, seats=2, max_waiting=3) as engine:
            gate.opened.clear()
            tasks = [asyncio.create_task(collect(engine, generation([i + 1]))) for i in range(5)]
            await asyncio.to_thread(gate.entered.wait, 30)
            await asyncio.sleep(0.05)
            with pytest.raises(Overloaded) as caught:
                await collect(engine, generation([7, 7]))
            assert 1 <= caught.value.retry_after_s <= 120
            gate.opened.set()
            for i, events in enumerate(await asyncio.gather(*tasks)):
                assert told(events).tokens[0] == answer([i + 1], GREEDY, 20)
            assert told(await collect(engine, generation([7, 7]))).tokens[0] == answer([7, 7], GREEDY, 20)

    run(test())


@pytest.mark.parametrize("how", ["aclose", "task"])
def test_a_reader_that_leaves_frees_its_rows(how: str) -> None:
    async def test() -> None:
        long = Sampling(temperature=0.0, ignore_eos=True, max_tokens=500, n=2)
        async with engine_of(StandIn(200), seats=3) as engine:
            batches = engine.generate(generation([4], long))
            if how == "aclose":
                await anext(batches)
                await batches.aclose()
            else:
                reading = asyncio.Event()

                async def read() -> None:
                    async for _ in batches:
                        reading.set()

                task = asyncio.create_task(read())
                await reading.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            others = await asyncio.gather(*(collect(engine, generation([i + 1])) for i in range(3)))
            for i, events in enumerate(others):
                assert told(events).tokens[0] == answer([i + 1], GREEDY, 20)

    run(test())


def test_a_turn_cancelled_in_the_queue_never_runs() -> None:
    async def test() -> None:
        kernel = StandIn(200)
        gate = Gate(kernel)
        async with engine_of(gate, seats=1) as engine:
            gate.opened.clear()
            first = asyncio.create_task(collect(engine, generation([3])))
            await asyncio.to_thread(gate.entered.wait, 30)
            second = asyncio.create_task(collect(engine, generation([4] * 50)))
            await asyncio.sleep(0.02)
            second.cancel()
            await asyncio.sleep(0)
            gate.opened.set()
            await first
            assert kernel.computed == 20

    run(test())


def test_choices_share_their_prompt() -> None:
    async def test() -> None:
        kernel = StandIn(200)
        async with engine_of(kernel) as engine:
            sampling = Sampling(temperature=1.0, seed=7, ignore_eos=True, max_tokens=10, n=4)
            prompt = [1 + i % 5 for i in range(70)]
            events = told(await collect(engine, generation(prompt, sampling)))
            assert events.started == Started(70, 0, 7, "standard")
            for choice in range(4):
                assert events.tokens[choice] == answer(prompt, sampling, 10, choice)
            assert len({tuple(tokens) for tokens in events.tokens.values()}) == 4
            assert kernel.computed == 70 + 3 * 6 + 4 * 9

    run(test())


def test_a_seed_is_drawn_and_reported() -> None:
    async def test() -> None:
        async with engine_of(StandIn(200)) as engine:
            free = Sampling(temperature=1.0, max_tokens=30)
            first, second = [told(await collect(engine, generation([5], free))) for _ in range(2)]
            assert first.started.seed != second.started.seed
            assert 0 <= first.started.seed < 2**53
            again = Sampling(temperature=1.0, max_tokens=30, seed=first.started.seed)
            repeated = told(await collect(engine, generation([5], again)))
            assert repeated.tokens == first.tokens
            assert repeated.started.seed == first.started.seed

    run(test())


def test_echo_gives_the_prompt_back_in_front() -> None:
    async def test() -> None:
        async with engine_of(StandIn(200)) as engine:
            for prompt in (RawText("abba"), [1, 2, 2, 1]):
                events = told(await collect(engine, generation(prompt, GREEDY, echo=True)))
                expected = b"".join(PIECES[token] for token in answer([1, 2, 2, 1], GREEDY, 20))
                assert events.texts[0] == "abba" + expected.decode("utf-8", "replace")

    run(test())


def test_no_tokens_wanted_computes_nothing() -> None:
    async def test() -> None:
        kernel = StandIn(200)
        async with engine_of(kernel) as engine:
            wanted = generation(RawText("abc"), Sampling(max_tokens=0, n=2), echo=True)
            events = await collect(engine, wanted)
            assert [type(event) for event in events] == [Started, Delta, Delta, ChoiceEnd, ChoiceEnd]
            assert kernel.computed == 0

    run(test())


def test_the_window_ends_an_answer() -> None:
    async def test() -> None:
        async with engine_of(StandIn(200)) as engine:
            endless = Sampling(temperature=0.0, ignore_eos=True)
            events = told(await collect(engine, generation([1] * (CONTEXT - 5), endless)))
            assert events.ends[0] == ChoiceEnd(0, "length", 5, work=Work(steps=5, rows=5))
            for prompt, most in (([1] * CONTEXT, None), ([1] * 500, 13), ([1] * 600, 0)):
                with pytest.raises(ContextOverflow) as caught:
                    await collect(engine, generation(prompt, Sampling(max_tokens=most)))
                assert caught.value.prompt_tokens == len(prompt)
                assert caught.value.context_window == CONTEXT

    run(test())


class Wrong:
    """Samplings that must be refused, with the field that is named."""

    CASES: ClassVar[Sequence[tuple[Sampling, str]]] = [
        (Sampling(temperature=-0.1), "temperature"),
        (Sampling(temperature=float("nan")), "temperature"),
        (Sampling(top_p=1.5), "top_p"),
        (Sampling(min_p=-1.0), "min_p"),
        (Sampling(top_k=-1), "top_k"),
        (Sampling(n=0), "n"),
        (Sampling(n=1000), "n"),
        (Sampling(logprobs=21), "logprobs"),
        (Sampling(max_tokens=-1), "max_tokens"),
        (Sampling(repetition_penalty=0.0), "repetition_penalty"),
        (Sampling(presence_penalty=float("inf")), "presence_penalty"),
        (Sampling(stop=("",)), "stop"),
        (Sampling(logit_bias=((len(PIECES), 1.0),)), "logit_bias"),
        (Sampling(logit_bias=((-1, 1.0),)), "logit_bias"),
        (Sampling(logit_bias=((1, float("nan")),)), "logit_bias"),
    ]


def test_impossible_generations_are_refused_with_the_field_named() -> None:
    async def test() -> None:
        async with engine_of(StandIn(200)) as engine:
            for sampling, param in Wrong.CASES:
                with pytest.raises(InvalidGeneration, match=param) as caught:
                    await collect(engine, generation([1], sampling))
                assert caught.value.param == param
            for prompt in ([], [-1], [len(PIECES)]):
                with pytest.raises(InvalidGeneration) as caught:
                    await collect(engine, generation(prompt))
                assert caught.value.param == "prompt"
            with pytest.raises(InvalidGeneration, match="does not serve 'x'"):
                await collect(engine, generation([1], model="x"))

    run(test())


def test_a_broken_step_fails_its_turns_and_the_loop_goes_on() -> None:
    async def test() -> None:
        kernel = StandIn(200)
        kernel.fail_on = 9
        async with engine_of(kernel) as engine:
            with pytest.raises(EngineFailure, match="this token breaks the step"):
                await collect(engine, generation([9]))
            kernel.fail_on = None
            assert told(await collect(engine, generation([9]))).tokens[0] == answer([9], GREEDY, 20)

    run(test())


def test_closing_fails_running_and_waiting_turns() -> None:
    async def test() -> None:
        gate = Gate(StandIn(200))
        engine = LocalEngine([served("m", gate, blocks=200, seats=1)])
        gate.opened.clear()
        tasks = [asyncio.create_task(collect(engine, generation([i + 1]))) for i in range(3)]
        await asyncio.to_thread(gate.entered.wait, 30)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0.02)
        gate.opened.set()
        await closing
        for task in tasks:
            with pytest.raises(EngineFailure, match="closed"):
                await task
        with pytest.raises(EngineFailure, match="closed"):
            await collect(engine, generation([1]))

    run(test())


def test_a_defect_of_the_loop_fails_every_turn_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        engine = LocalEngine([served("m", StandIn(200), blocks=200, seats=1)])

        def broken(self: Lane) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(Lane, "schedule", broken)
        for _ in range(2):
            with pytest.raises(EngineFailure, match="a defect"):
                await collect(engine, generation([1]))
        await engine.close()

    run(test())


def test_several_models_share_one_loop() -> None:
    async def test() -> None:
        engine = LocalEngine([served(name, StandIn(100), blocks=100, seats=2) for name in "ab"])
        wanted = [generation([i + 1], model=name) for i in range(4) for name in "ab"]
        results = await asyncio.gather(*(collect(engine, g) for g in wanted))
        for i, events in enumerate(results):
            assert told(events).tokens[0] == answer([i // 2 + 1], GREEDY, 20)
        assert [entry.id for entry in engine.models()] == ["a", "b"]
        await engine.close()

    run(test())


def test_status_counts_steps_and_cache() -> None:
    async def test() -> None:
        gate = Gate(StandIn(200))
        async with engine_of(gate, seats=1) as engine:
            gate.opened.clear()
            tasks = [asyncio.create_task(collect(engine, generation([i + 1] * 40))) for i in range(3)]
            await asyncio.to_thread(gate.entered.wait, 30)
            await asyncio.sleep(0.02)
            status = engine.status()
            assert (status.running, status.waiting) == (1, 2)
            assert (status.cache_tokens_used, status.cache_tokens_total) == (64, 6400)
            gate.opened.set()
            await asyncio.gather(*tasks)
            status = engine.status()
            assert status.steps == 60
            assert sorted(set(status.step_rows)) == [1, 40]
            assert len(status.step_seconds) == len(status.step_rows) == 60
            assert engine.status().step_rows == ()

    run(test())


def test_tokens_are_counted_without_running() -> None:
    async def test() -> None:
        async with engine_of(StandIn(200)) as engine:
            assert await engine.count_tokens("m", RawText("abc" * 1000)) == 3000

    run(test())


def test_a_reader_that_falls_behind_pauses_its_own_turn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.engine.local.mailbox.FULL", 8)

    async def test() -> None:
        kernel = StandIn(200)
        async with engine_of(kernel, seats=2) as engine:
            long = Sampling(temperature=0.0, ignore_eos=True, max_tokens=200)
            slow = engine.generate(generation([5, 6, 7], long))
            events = list(await anext(slow))
            lane = engine._models["m"].lane  # pyright: ignore[reportPrivateUsage]
            while not lane.paused:  # it is not read, so it ends up here
                await asyncio.sleep(0.001)
            assert lane.seats.free == 2
            assert lane.pool.free == lane.pool.total
            others = await asyncio.gather(*(collect(engine, generation([t], long)) for t in (1, 2, 3)))
            for t, other in zip((1, 2, 3), others, strict=True):
                assert told(other).tokens[0] == answer([t], long, 200)
            async for batch in slow:
                events += batch
            assert told(events).tokens[0] == answer([5, 6, 7], long, 200)

    run(test())


def test_a_paused_turn_can_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.engine.local.mailbox.FULL", 8)

    async def test() -> None:
        async with engine_of(StandIn(200)) as engine:
            slow = engine.generate(generation([5, 6, 7], Sampling(ignore_eos=True, max_tokens=200)))
            await anext(slow)
            lane = engine._models["m"].lane  # pyright: ignore[reportPrivateUsage]
            while not lane.paused:
                await asyncio.sleep(0.001)
            await slow.aclose()
            while lane.paused:
                await asyncio.sleep(0.001)

    run(test())
