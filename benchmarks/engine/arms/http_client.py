"""Our server as an arm, over HTTP: this worker is the client and keeps the server as its child.

The client is lean on purpose, since it shares the processor with what it measures: raw sockets, one search for the
event marker per packet, no JSON but for the last event. Its own processor time is reported with every slice.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.engine.arms.lines import cpu_seconds_of, memory_of, serve
from benchmarks.engine.arms.timeline import Timeline, common_window, slack
from benchmarks.engine.prompts import prompt_ids

START_TIMEOUT_S = 300.0
EVENT = b"data: {"


class Stream(asyncio.Protocol):
    """One completion: sends the request when connected, notes the moment of every packet that brings events."""

    def __init__(self, request: bytes, done: asyncio.Future[Timeline]) -> None:
        self._request = request
        self._done = done
        self._received = bytearray()
        self._counted = 0
        self._timeline = Timeline()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        # The marker may lie across two packets: search again from a little before the last place.
        events = self._received.count(EVENT, self._counted)
        if events:
            self._timeline.arrived(time.perf_counter(), events)
            self._counted = self._received.rfind(EVENT) + len(EVENT)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done.cancelled():
            return
        try:
            self._done.set_result(self._timeline.scaled_to(self._completion_tokens()))
        except (ValueError, KeyError, ZeroDivisionError) as error:
            shown = bytes(self._received[-500:]).decode(errors="replace")
            self._done.set_exception(RuntimeError(f"The server's answer ended badly ({error!r}): {shown}"))

    def _completion_tokens(self) -> int:
        """From the usage of the last event; with it the last event itself is no token."""
        body = bytes(self._received)
        last = body[body.rfind(EVENT) + len(b"data: ") :]
        usage, _ = json.JSONDecoder().raw_decode(last.decode())
        self._timeline.tokens[-1] -= 1
        if not self._timeline.tokens[-1]:
            self._timeline.tokens.pop()
            self._timeline.moments.pop()
        return int(usage["usage"]["completion_tokens"])


class Server:
    """The server's process, once it answers."""

    def __init__(self, model: str, threads: int, cache_tokens: int | None) -> None:
        self.port = _free_port()
        command = [
            str(Path(sys.executable).with_name("gearshift")),
            "serve",
            "--model",
            model,
            "--port",
            str(self.port),
        ]
        if cache_tokens is not None:
            command += ["--cache-tokens", str(cache_tokens)]
        self.process = subprocess.Popen(command, stdout=2)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"`{' '.join(command)}` ended with {self.process.returncode} before it served.")
            if time.monotonic() > deadline:
                raise RuntimeError(f"`{' '.join(command)}` did not answer within {START_TIMEOUT_S:.0f} s.")
            time.sleep(0.1)
        self.model = self._model_id()

    def _get(self, path: str) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nConnection: close\r\n\r\n".encode()
            )
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        return answer

    def _answers(self) -> bool:
        try:
            return self._get("/healthz").startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    def _model_id(self) -> str:
        body = self._get("/v1/models").partition(b"\r\n\r\n")[2]
        listed, _ = json.JSONDecoder().raw_decode(body[body.index(b"{") :].decode())
        return str(listed["data"][0]["id"])

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.process.pid)

    def request(self, prompt: list[int], tokens: int) -> bytes:
        body = json.dumps(
            {
                "model": self.model,
                "prompt": prompt,
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


servers: dict[str, Server] = {}


def load(name: str, path: str, threads: int, cache_tokens: int | None = None) -> dict[str, Any]:
    """Start the server and wait until it answers."""
    started = time.perf_counter()
    servers[name] = Server(path, threads, cache_tokens)
    return {"seconds": time.perf_counter() - started, "model": servers[name].model}


async def _stream(server: Server, prompt: list[int], tokens: int) -> Timeline:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Timeline] = loop.create_future()
    request = server.request(prompt, tokens)
    transport, _ = await loop.create_connection(lambda: Stream(request, done), "127.0.0.1", server.port)
    try:
        return await done
    finally:
        transport.close()


async def _streams(server: Server, streams: int, context: int, tokens: int) -> list[Timeline]:
    prompts = [prompt_ids(context, stream) for stream in range(streams)]
    return await asyncio.gather(*(_stream(server, prompt, tokens) for prompt in prompts))


def decode(model: str, streams: int, context: int, new: int, warmup: int) -> dict[str, Any]:
    """Decode on `streams` connections at once; the rate while all of them run (see `timeline`)."""
    server = servers[model]
    # Prompts come into the cache first, so that the streams of the measurement start together.
    asyncio.run(_streams(server, streams, context, 1))
    own = _own_cpu()
    theirs = server.cpu_seconds()
    started = time.perf_counter()
    timelines = asyncio.run(_streams(server, streams, context, warmup + new + slack(streams)))
    seconds = time.perf_counter() - started
    begin, end, tokens = common_window(timelines, warmup)
    cpu = {
        "client_cpu_share": (_own_cpu() - own) / seconds,
        "server_cpu_share": (server.cpu_seconds() - theirs) / seconds,
    }
    return {"seconds": end - begin, "tokens": tokens, "notes": cpu}


def _own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def memory(model: str) -> dict[str, Any]:
    """Resident memory of the server's process."""
    return memory_of(servers[model].process.pid)


def stop(model: str) -> dict[str, Any]:
    """End the server."""
    servers.pop(model).stop()
    return {}


if __name__ == "__main__":
    try:
        serve({"load": load, "decode": decode, "memory": memory, "stop": stop})
    finally:
        for each in servers.values():
            each.stop()
