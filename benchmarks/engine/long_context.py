"""Long contexts: what a step and a first token cost as the context grows, and a run at 131,072 tokens.

The second model's window is 32,768 tokens, so the longest run uses made-up weights: time and memory do not depend on
the weights' values.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engine.run import Run, Section
from benchmarks.engine.samples import quantile
from benchmarks.engine.tables import table
from benchmarks.engine.worker import Worker

MB = 1 << 20
LENGTHS = (256, 1024, 4096, 8192, 16384, 32768)
SYNTHETIC_TOKENS = 131_072
COMPUTED = "The first token's time is that of the whole prompt, computed."
ADDED_UP = "The first token's time is added up from chunks of 512 that were timed at these lengths."


def measure_long(run: Run) -> list[Section]:
    """One section per model: the second real one over its window, and the synthetic one."""
    sections: list[Section] = []
    with run.our_worker("long_context") as worker:
        path = run.model_file(run.long_model)
        about = worker.call("load", path=str(path), threads=run.threads, tokens=LENGTHS[-1])
        sections.append(
            _section(f"{path.name}, by context length", "long-real", COMPUTED, about, _measure(worker, run, LENGTHS))
        )
    lengths = (*LENGTHS, 65_536, SYNTHETIC_TOKENS)
    with run.our_worker("long_context") as worker:
        about = worker.call("load_synthetic", threads=run.threads, tokens=SYNTHETIC_TOKENS)
        measured = _measure(worker, run, lengths)
        sections.append(_section("Synthetic weights, 131,072 tokens", "long-synthetic", ADDED_UP, about, measured))
    return sections


def _measure(worker: Worker, run: Run, lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    wanted = [length for length in lengths if not run.quick or length <= 4096]
    return [worker.call("grow_to", tokens=length, timeout_s=3600.0) for length in wanted]


def _section(title: str, name: str, how: str, about: dict[str, Any], measured: list[dict[str, Any]]) -> Section:
    rows = [
        [
            f"{each['context']:,}",
            f"{each['first_token_s']:.2f}",
            f"{quantile(each['step_seconds'], 0.5) * 1000:.2f}",
            f"{each['blocks']:,}",
            f"{each['rss'] / MB:.0f}",
        ]
        for each in measured
    ]
    header = ["context, tokens", "first token, s", "step of one row, ms", "blocks in use", "resident, MiB"]
    told = (
        f"Packed weights {about['packed_bytes'] / MB:.0f} MiB, cache {about['cache_bytes'] / MB:.0f} MiB for "
        f"{about['cache_tokens']:,} tokens ({about['cache_bytes_per_token']:,} bytes a token). {how}"
    )
    data = {"about": about, "measured": measured}
    return Section(name, f"### {title}\n\n{table(header, rows)}\n\n{told}", data)
