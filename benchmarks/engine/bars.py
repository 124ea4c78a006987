"""The bars that a run is judged by. Plain data: each is a ratio within one run, never a time.

Set before anything was measured; a bar that is missed is printed as missed.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.engine.plans import PREFILL_KEY, ROW_COUNTS, STREAM_COUNTS, decode_key, rows_key

STEP_MULTIPLES = {4: 1.7, 16: 3.3, 64: 11.0}
"""A step of so many rows of one stream costs at most this many times a step of one row."""
BANDWIDTH_SHARE = 0.7
"""Of the limit set by reading the weights, for one stream."""
SERVER_COST = {1: 0.05, 32: 0.15}
"""Highest server cost by streams: (rate inside - rate over HTTP) / rate inside."""
OVERHEAD_BYTES = {"small vocabulary": 300 << 20, "large vocabulary": 600 << 20}
"""Resident memory beyond packed weights and cache; a vocabulary is large from 200,000 tokens on."""
LARGE_VOCABULARY = 200_000

BEST_PATH = {decode_key(1): 4.0, decode_key(32): 6.0, PREFILL_KEY: 6.0}
ALL_MEASURES = (
    decode_key(1),
    *(rows_key(rows) for rows in ROW_COUNTS),
    *(decode_key(streams) for streams in STREAM_COUNTS),
    PREFILL_KEY,
)
VLLM = {decode_key(32): 2.5, PREFILL_KEY: 1.1}


@dataclass(frozen=True, slots=True)
class Bar:
    """At least `ratio` times the peer's rate."""

    ratio: float


def bar_for(isa: str, measure: str) -> Bar | None:
    """What one of our paths must reach against llama.cpp built for the same path; None where no bar was set."""
    if isa == "amx":
        return Bar(BEST_PATH[measure]) if measure in BEST_PATH else None
    if isa == "avx512":
        return Bar(2.0)
    if isa == "avx2":
        return Bar(1.3)
    return None


def overhead_bar(vocabulary: int) -> int:
    """Bytes that a process may hold beyond packed weights and cache."""
    return OVERHEAD_BYTES["large vocabulary" if vocabulary >= LARGE_VOCABULARY else "small vocabulary"]
