"""What is measured: the plans of a run, their sizes, and how a worker's answer becomes tokens per second.

One plan is one call to a worker. The step times by rows share a call, so that their ratios come from one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.engine.samples import quantile

CONTEXT = 256
"""Tokens in front of the measured ones."""
ROW_COUNTS = (1, 4, 16, 64)
STREAM_COUNTS = (8, 16, 32)
PREFILL_TOKENS = 2000


@dataclass(frozen=True, slots=True)
class Plan:
    """One operation with its arguments.

    Attributes:
        key: the plan's name; also the measure's, where it yields one.
        op: the worker's operation.
        arguments: what the operation takes, besides the model.
        fresh_prompt: hand in a new `key` each time, so that no cache can know the prompt.
    """

    key: str
    op: str
    arguments: Mapping[str, Any]
    fresh_prompt: bool = False


def decode_key(streams: int) -> str:
    """Name of the measure "decode of so many streams"."""
    return f"decode-{streams}"


def rows_key(rows: int) -> str:
    """Name of the measure "step of so many rows of one stream"."""
    return f"rows-{rows}"


PREFILL_KEY = "prefill"


def plans(quick: bool) -> list[Plan]:
    """The plans of a run; quick ones are shorter, not fewer."""
    one = 32 if quick else 128
    several = 6 if quick else 32
    return [
        Plan(decode_key(1), "decode", {"streams": 1, "context": CONTEXT, "new": one, "warmup": 4}),
        Plan(
            "rows",
            "rows",
            {"counts": list(ROW_COUNTS), "context": CONTEXT, "repeats": 3 if quick else 9, "warmup": 1 if quick else 2},
        ),
        *(
            Plan(decode_key(n), "decode", {"streams": n, "context": CONTEXT, "new": several, "warmup": 2})
            for n in STREAM_COUNTS
        ),
        Plan(PREFILL_KEY, "prefill", {"tokens": PREFILL_TOKENS}, fresh_prompt=True),
    ]


def values_from(plan: Plan, answer: Mapping[str, Any]) -> dict[str, float]:
    """Measure -> tokens per second. A step of n rows counts as n tokens in its median time."""
    if plan.op == "rows":
        steps: Mapping[str, list[float]] = answer["step_seconds"]
        return {rows_key(int(count)): int(count) / quantile(seconds, 0.5) for count, seconds in steps.items()}
    return {plan.key: float(answer["tokens"]) / float(answer["seconds"])}


def rows_per_step(measure: str) -> int:
    """Rows that read the weights together in a measure (a prefill: one chunk of 512 tokens, see `limit_rate`)."""
    kind, _, count = measure.partition("-")
    return PREFILL_CHUNK if kind == PREFILL_KEY else int(count)


PREFILL_CHUNK = 512
"""Rows per step that a prefill is charged with when its physical limit is computed."""


def limit_rate(measure: str, weight_bytes: int, bandwidth: float) -> float:
    """Tokens per second if a step took exactly as long as reading its weights once."""
    return rows_per_step(measure) * bandwidth / weight_bytes
