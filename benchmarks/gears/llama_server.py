"""llama.cpp's server with drafts from n-grams of the prompt, as an arm: one turn alone, and one beside a load.

Runs in the peer's environment, so it needs the standard library and xllamacpp only. All its streams are equal: it
has no gears. The client counts events, one a token, and leaves the text alone; it shares the cores with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.engine.arms.lines import serve
from benchmarks.engine.arms.timeline import Timeline
from benchmarks.engine.prompts import prompt_ids
from benchmarks.gears.rates import Window, pooled_rate, rate_within, total_within

EVENT = b"data: {"
CONTEXT = 256
ALONE_S = 0.7
START_TIMEOUT_S = 300.0
_ENDING_S = 0.5
"""Until the server has noticed that nobody listens: the next probe must not run beside it."""

servers: list[Any] = []
runner = asyncio.Runner()


class Stream(asyncio.Protocol):
    """One completion: sends the request when connected, notes the moments of its events."""

    def __init__(self, request: bytes) -> None:
        self.timeline = Timeline()
        self.done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.WriteTransport | None = None
        self._request = request
        self._received = bytearray()
        self._counted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        # The marker may lie across two packets: search again from a little before the last place.
        events = self._received.count(EVENT, self._counted)
        if events:
            self.timeline.arrived(time.perf_counter(), events)
            self._counted = self._received.rfind(EVENT) + len(EVENT)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done.done():
            return
        body = bytes(self._received)
        last: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            last, _ = json.JSONDecoder().raw_decode(body[body.rfind(EVENT) + len(EVENT) - 1 :].decode(errors="replace"))
        self.done.set_result(last)


def load(path: str, threads: int, streams: int, window: int, speculation: str, match: int, most: int) -> dict[str, Any]:
    """A server with room for `streams` at once, each within `window` tokens.

    speculation: how drafts are found, by xllamacpp's own name; `match` tokens are looked up, `most` are drafted.
    """
    import xllamacpp  # pyright: ignore[reportMissingImports] - in the peer's environment

    module: Any = xllamacpp
    parameters: Any = module.CommonParams()
    parameters.model.path = path
    parameters.n_parallel = streams
    parameters.n_ctx = streams * window
    parameters.kv_unified = True
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.verbosity = 0
    parameters.ui = False
    if speculation != "NONE":
        parameters.speculative.types = [
            getattr(module.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{speculation}")
        ]
        own: Any = getattr(parameters.speculative, speculation.lower(), None)
        if hasattr(own, "size_n"):
            own.size_n, own.size_m = match, most
    server = module.Server(parameters)
    servers[:] = [server]
    return {"version": module.__version__, "system": module.get_system_info(), "speculation": speculation}


def turn(prompt: str, stop: str, most_tokens: int) -> dict[str, Any]:
    """A turn with the server to itself."""
    return runner.run(_turn(prompt, stop, most_tokens, 0))


def loaded_turn(prompt: str, stop: str, most_tokens: int, streams: int) -> dict[str, Any]:
    """A turn beside so many others that do not end."""
    return runner.run(_turn(prompt, stop, most_tokens, streams))


async def _turn(prompt: str, stop: str, most_tokens: int, streams: int) -> dict[str, Any]:
    others = [
        await _open({"prompt": prompt_ids(CONTEXT, key), "n_predict": -1, "ignore_eos": True, "cache_prompt": True})
        for key in range(streams)
    ]
    give_up = time.monotonic() + START_TIMEOUT_S
    while not all(each.timeline.moments for each in others):
        if time.monotonic() > give_up or any(each.done.done() for each in others):
            raise RuntimeError(
                f"The {streams} streams did not start: {[e.done.result() for e in others if e.done.done()][:1]}"
            )
        await asyncio.sleep(0.02)
    before = await _window(ALONE_S if others else 0.0)
    own = await _open({"prompt": prompt, "n_predict": most_tokens, "stop": [stop], "cache_prompt": False})
    asked = time.perf_counter()
    last = await own.done
    if len(own.timeline.moments) < 2:
        raise RuntimeError(f"The server's answer has no rate: {last}")
    after = await _window(ALONE_S if others else 0.0)
    for each in others:
        assert each.transport is not None
        each.transport.abort()
    if others:
        await asyncio.sleep(_ENDING_S)
    values = _values(own.timeline, [each.timeline for each in others], [before, after])
    timings = last.get("timings", {})
    values |= {name: float(timings[name]) for name in ("draft_n", "draft_n_accepted") if name in timings}
    return {**values, "first_token_s": own.timeline.moments[0] - asked}


def _values(own: Timeline, others: list[Timeline], alone: list[Window]) -> dict[str, float]:
    beside = [(own.moments[0], own.moments[-1])]
    # The last event brings the reason for the end, no token.
    rate = pooled_rate([Timeline(own.moments, [*own.tokens[:-1], own.tokens[-1] - 1])]) or 0.0
    values = {"rate": rate, "tokens": sum(own.tokens) - 1}
    if others:
        values |= {
            "stream": median(rate_within(each, beside) for each in others),
            "total": total_within(others, beside) + rate,
            "alone": total_within(others, alone),
        }
    return values


async def _window(seconds: float) -> Window:
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    return begin, time.perf_counter()


async def _open(asked: dict[str, Any]) -> Stream:
    address = urlsplit(str(servers[0].listening_address))
    body = json.dumps({"temperature": 0, "stream": True, **asked}).encode()
    head = (
        f"POST /completion HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    assert address.hostname is not None and address.port is not None
    _, stream = await asyncio.get_running_loop().create_connection(
        lambda: Stream(request), address.hostname, address.port
    )
    return stream


if __name__ == "__main__":
    serve({"load": load, "turn": turn, "loaded_turn": loaded_turn})
