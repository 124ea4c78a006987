"""Resident memory of our engine: packed weights, cache, and what comes on top."""

from __future__ import annotations

from benchmarks.engine.bars import overhead_bar
from benchmarks.engine.plans import CONTEXT
from benchmarks.engine.run import Run, Section
from benchmarks.engine.tables import table, verdict

MB = 1 << 20


def measure_memory(run: Run) -> list[Section]:
    """The section on memory: one row per model file, after 32 streams have run so that buffers are in use."""
    data: list[dict[str, int]] = []
    rows: list[list[str]] = []
    path = run.model_file(run.model)
    with run.our_worker("kernel") as worker:
        kernel = worker.call("load", name="model", path=str(path), threads=run.threads)
    with run.our_worker("engine") as worker:
        engine = worker.call("load", name="model", path=str(path), threads=run.threads)
        worker.call("decode", model="model", streams=32, context=CONTEXT, new=16, warmup=1)
        memory = worker.call("memory")
    packed = int(kernel["packed_bytes"])
    cache = int(engine["cache_tokens"]) * int(kernel["cache_bytes_per_token"])
    # Pages of the cache that were never used are not resident, so this counts at least what is on top.
    overhead = max(0, int(memory["rss"]) - packed - cache)
    bar = overhead_bar(int(kernel["vocabulary"]))
    within = int(memory["rss"]) <= packed + cache + bar
    data.append({**memory, "packed": packed, "cache": cache, "bar": bar})
    rows.append(
        [
            path.name,
            f"{packed / MB:.0f}",
            f"{cache / MB:.0f} ({engine['cache_tokens']:,} tokens)",
            f"{memory['rss'] / MB:.0f} ({memory['anonymous'] / MB:.0f} anonymous, {memory['mapped'] / MB:.0f} mapped)",
            f"{overhead / MB:.0f}",
            f"≤ {bar / MB:.0f}",
            verdict(within),
        ]
    )
    header = ["model", "packed weights, MiB", "cache, MiB", "resident, MiB", "beyond both, MiB", "bar", "met"]
    return [Section("memory", "### Resident memory\n\n" + table(header, rows), data)]
