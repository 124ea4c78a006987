"""Resident memory of our engine and of the server: packed weights, cache, and what comes on top.

The cache is set to exactly what the streams fill, so that all of it is resident when memory is read; pages that were
never touched would hide what comes on top.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engine.arms.timeline import slack
from benchmarks.engine.bars import overhead_bar
from benchmarks.engine.run import Run, Section
from benchmarks.engine.tables import table, verdict

MB = 1 << 20
STREAMS = 32
CACHE_TOKENS = STREAMS * 512
FILLING: dict[str, Any] = {
    "streams": STREAMS,
    "context": 448,
    "new": CACHE_TOKENS // STREAMS - 448 - slack(STREAMS),
    "warmup": 0,
}
"""512 tokens for each stream."""


def measure_memory(run: Run) -> list[Section]:
    """The section on memory."""
    path = str(run.model_file(run.model))
    settings: dict[str, Any] = {"name": "model", "path": path, "threads": run.threads, "cache_tokens": CACHE_TOKENS}
    with run.our_worker("engine") as worker:
        about = worker.call("load", **settings)
        worker.call("decode", model="model", **FILLING)
        in_process = worker.call("memory")
    with run.our_worker("http_client") as worker:
        worker.call("load", **settings)
        worker.call("decode", model="model", **FILLING)
        served = worker.call("memory", model="model")
        worker.call("stop", model="model")
    measured = {"engine in process": in_process, "server": served}
    header = ["process", "packed weights, MiB", "cache, MiB", "resident, MiB", "beyond both, MiB", "bar", "met"]
    rows = [_row(name, about, memory) for name, memory in measured.items()]
    told = f"After {STREAMS} streams filled a cache of {CACHE_TOKENS:,} tokens."
    text = f"### Resident memory\n\n{table(header, rows)}\n\n{told}"
    return [Section("memory", text, {"about": about, "measured": measured})]


def _row(name: str, about: dict[str, Any], memory: dict[str, Any]) -> list[str]:
    packed, cache = int(about["packed_bytes"]), int(about["cache_bytes"])
    beyond = int(memory["rss"]) - packed - cache
    bar = overhead_bar(int(about["vocabulary"]))
    return [
        name,
        f"{packed / MB:.0f}",
        f"{cache / MB:.0f}",
        f"{memory['rss'] / MB:.0f} ({memory['anonymous'] / MB:.0f} anonymous, {memory['mapped'] / MB:.0f} mapped)",
        f"{beyond / MB:.0f}",
        f"≤ {bar / MB:.0f}",
        verdict(beyond <= bar),
    ]
