"""Our engine in this process as an arm: `LocalEngine` through its protocol, no HTTP.

The path is chosen by GEARSHIFT_ISA in the worker's environment. Decode slices find their prompts in the cache, so
that the streams start together; prefill slices get prompts that were never seen.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.engine.arms.lines import memory, serve
from benchmarks.engine.arms.steps import step_read_bytes
from benchmarks.engine.arms.timeline import Timeline, common_window, slack
from benchmarks.engine.prompts import prompt_ids
from gearshift.caller import LOCAL
from gearshift.conversation import RawTokens
from gearshift.engine.local.engine import LocalEngine
from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.load import EngineOptions
from gearshift.engine.local.load import load as load_engine
from gearshift.engine.local.shape import shape_of
from gearshift.engine.protocol import Delta, Generation, Sampling

runner = asyncio.Runner()
engines: dict[str, LocalEngine] = {}


def load(name: str, path: str, threads: int, cache_tokens: int | None = None) -> dict[str, Any]:
    """An engine with its default settings that serves one model file."""
    started = time.perf_counter()
    engines[name] = engine = load_engine([path], EngineOptions(threads=threads, cache_tokens=cache_tokens))
    (resident,) = engine.resident
    with Gguf.open(path) as gguf:
        vocabulary = shape_of(gguf).vocab
    return {
        "seconds": time.perf_counter() - started,
        "isa": resident.isa,
        "weight_bytes": step_read_bytes(path),
        "packed_bytes": resident.weights_bytes,
        "cache_bytes": resident.cache_bytes,
        "cache_tokens": resident.cache_tokens,
        "vocabulary": vocabulary,
    }


async def _stream(engine: LocalEngine, prompt: list[int], tokens: int) -> Timeline:
    generation = Generation(
        turn_id=f"bench-{time.perf_counter_ns()}",
        model=engine.models()[0].id,
        prompt=RawTokens(tuple(prompt)),
        sampling=Sampling(max_tokens=tokens, temperature=0, ignore_eos=True),
        caller=LOCAL,
    )
    timeline = Timeline()
    async for batch in engine.generate(generation):
        arrived = sum(len(event.token_ids) for event in batch if isinstance(event, Delta))
        if arrived:
            timeline.arrived(time.perf_counter(), arrived)
    return timeline


async def _streams(name: str, streams: int, context: int, tokens: int) -> list[Timeline]:
    prompts = [prompt_ids(context, stream) for stream in range(streams)]
    return await asyncio.gather(*(_stream(engines[name], prompt, tokens) for prompt in prompts))


def decode(model: str, streams: int, context: int, new: int, warmup: int) -> dict[str, Any]:
    """Decode on `streams` turns at once; the rate while all of them run (see `timeline`)."""
    runner.run(_streams(model, streams, context, 1))
    begin, end, tokens = common_window(
        runner.run(_streams(model, streams, context, warmup + new + slack(streams))), warmup
    )
    return {"seconds": end - begin, "tokens": tokens}


def prefill(model: str, tokens: int, key: int) -> dict[str, Any]:
    """A prompt never seen before, up to its first new token."""
    prompt = prompt_ids(tokens, key)
    started = time.perf_counter()
    timeline = runner.run(_stream(engines[model], prompt, 1))
    return {"seconds": timeline.moments[0] - started, "tokens": tokens}


if __name__ == "__main__":
    serve({"load": load, "decode": decode, "prefill": prefill, "memory": memory})
