"""The engine over the real model, as the server gets it: what is resident, streams, stop strings, leaving, sharing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from gearshift.caller import LOCAL, Caller, Work
from gearshift.conversation import Prompt, RawText, RawTokens
from gearshift.engine import ChoiceEnd, EngineEvent, Generation, Sampling
from gearshift.engine.local.engine import LocalEngine
from gearshift.engine.local.load import EngineOptions, OpenModel, free_memory_bytes, load, serve
from tests.engine.local.stand_in import Told, told

OPTIONS = EngineOptions(max_streams=8, cache_tokens=4096, threads=2)
GREEDY = Sampling(temperature=0.0, ignore_eos=True, max_tokens=24)
STORY = RawText("Once upon a time, in a small village by the sea, there lived an old fisherman who")


@asynccontextmanager
async def engine_of(model: OpenModel, options: EngineOptions = OPTIONS) -> AsyncGenerator[LocalEngine, None]:
    engine = serve([model], options)
    try:
        yield engine
    finally:
        await engine.close()


async def ask(engine: LocalEngine, prompt: Prompt, sampling: Sampling, caller: Caller = LOCAL) -> Told:
    events: list[EngineEvent] = []
    async with aclosing(engine.generate(Generation("t", engine.models()[0].id, prompt, sampling, caller))) as batches:
        async for batch in batches:
            events.extend(batch)
    return told(events)


def test_what_is_resident_is_told(smollm2: OpenModel) -> None:
    async def test() -> None:
        async with engine_of(smollm2) as engine:
            (resident,) = engine.resident
            assert resident.model == engine.models()[0].id == "smollm2-135m-instruct"
            assert resident.weights_bytes == smollm2.weights_bytes > 60e6
            assert resident.cache_tokens == 4096
            assert resident.cache_bytes >= 4096 * smollm2.kernel.cache_bytes_per_token
            assert engine.models()[0].context_window == 4096
            assert engine.status().cache_tokens_total == 4096

    asyncio.run(test())


def test_a_stop_string_ends_an_answer_wherever_it_lies(smollm2: OpenModel) -> None:
    async def test() -> None:
        async with engine_of(smollm2) as engine:
            whole = (await ask(engine, STORY, GREEDY)).texts[0]
            for start, end in ((5, 8), (11, 19), (20, 21)):
                stop = whole[start:end]
                events = await ask(engine, STORY, replace(GREEDY, stop=(stop,)))
                assert events.texts[0] == whole[: whole.index(stop)]
                assert events.ends[0].reason == "stop"
                assert events.ends[0].stop_text == stop
                assert events.ends[0].completion_tokens <= 24

    asyncio.run(test())


def test_streams_are_those_of_single_turns_while_others_leave(smollm2: OpenModel) -> None:
    async def leave_early(engine: LocalEngine, number: int) -> None:
        wanted = Generation("x", "smollm2-135m-instruct", RawText(f"{number} is"), replace(GREEDY, n=2), LOCAL)
        batches = engine.generate(wanted)
        for _ in range(number):
            await anext(batches)
        await batches.aclose()

    async def test() -> None:
        async with engine_of(smollm2) as engine:
            sampling = replace(GREEDY, temperature=0.9, seed=4, n=2)
            alone = await ask(engine, STORY, sampling)
            leaving = [asyncio.create_task(leave_early(engine, number)) for number in range(1, 12)]
            together = await asyncio.gather(*(ask(engine, STORY, sampling) for _ in range(4)))
            await asyncio.gather(*leaving)
            for events in together:
                assert events.tokens == alone.tokens
                assert events.texts == alone.texts
            for _ in range(200):
                if not engine.status().cache_tokens_used:
                    break
                await asyncio.sleep(0.01)
            assert engine.status().cache_tokens_used == 0

    asyncio.run(test())


def test_an_end_of_text_token_has_no_text_and_ends_the_answer(smollm2: OpenModel) -> None:
    async def test() -> None:
        async with engine_of(smollm2) as engine:
            (end, *_) = sorted(smollm2.tokenizer.ends)
            forced = Sampling(temperature=0.0, max_tokens=5, logit_bias=((end, 1000.0),))
            events = await ask(engine, STORY, forced)
            assert (events.tokens[0], events.texts[0]) == ([end], "")
            assert events.ends[0] == ChoiceEnd(0, "stop", 1, work=Work(steps=1, rows=1))
            events = await ask(engine, STORY, replace(forced, ignore_eos=True))
            assert (events.tokens[0], events.texts[0]) == ([end] * 5, "")
            assert events.ends[0] == ChoiceEnd(0, "length", 5, work=Work(steps=5, rows=5))

    asyncio.run(test())


def test_a_piece_of_a_character_is_given_out_as_a_replacement(smollm2: OpenModel) -> None:
    async def test() -> None:
        async with engine_of(smollm2) as engine:
            ids = smollm2.tokenizer.encode("👩‍💻 写代码")
            text = ""
            for i, token in enumerate(ids):
                forced = Sampling(temperature=0.0, max_tokens=1, logit_bias=((token, 1000.0),))
                events = await ask(engine, RawTokens(tuple(ids[: i + 1])), forced)
                text += events.texts[0]
            assert "�" in text, "a lone piece of a character must not pass for a whole one"

    asyncio.run(test())


def test_callers_of_other_scopes_do_not_share_the_cache(smollm2: OpenModel) -> None:
    async def test() -> None:
        async with engine_of(smollm2) as engine:
            prompt = RawText("The quick brown fox jumps over the lazy dog. " * 8)
            one = replace(GREEDY, max_tokens=1)
            cached = [
                (await ask(engine, prompt, one, Caller("a", scope))).started.cached_tokens for scope in ("x", "y", "x")
            ]
            assert cached[:2] == [0, 0]
            assert cached[2] >= 64

    asyncio.run(test())


def test_options_out_of_range_are_named(smollm2: OpenModel) -> None:
    with pytest.raises(ValueError, match="max_streams must be at least 1"):
        serve([smollm2], replace(OPTIONS, max_streams=0))


def test_a_model_is_loaded_by_its_path(smollm2: OpenModel) -> None:
    engine = load([str(smollm2.path)], OPTIONS)
    assert engine.models()[0].id == smollm2.path.stem.lower()
    asyncio.run(engine.close())


def test_free_memory_is_a_sensible_number() -> None:
    assert 2**26 < free_memory_bytes() < 2**50
