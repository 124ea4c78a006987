"""A worker for the tests: counts its calls, sleeps, prints, fails or ends on demand."""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.engine.arms.lines import memory, serve

calls: list[str] = []


def decode(model: str, streams: int, context: int, new: int, warmup: int) -> dict[str, Any]:
    calls.append(model)
    print("libraries like to print")
    return {"tokens": streams * new, "seconds": 1.0, "notes": {"calls": len(calls)}}


def fail() -> dict[str, Any]:
    raise RuntimeError("on demand")


def end() -> dict[str, Any]:
    os.write(2, b"last words")
    os._exit(3)


def sleep(seconds: float) -> dict[str, Any]:
    time.sleep(seconds)
    return {}


def burn(loops: int) -> dict[str, Any]:
    total = 0
    for i in range(loops):
        total += i
    return {"total": total}


if __name__ == "__main__":
    serve({"decode": decode, "fail": fail, "end": end, "sleep": sleep, "burn": burn, "memory": memory})
