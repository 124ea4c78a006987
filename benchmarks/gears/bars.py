"""The bars that a run is judged by. Plain data, set before anything was measured; a missed bar is printed as missed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.gears.turns import Kind

ULTRAFAST_IDLE: Mapping[str, Mapping[Kind, float]] = {
    "gemma-3-270m": {"copy": 1000.0, "hints": 800.0, "extract": 800.0, "rename": 600.0}
}
"""Tokens per second at the median, on a machine with AMX."""
AMX_FLAG = "amx_int8"


@dataclass(frozen=True, slots=True)
class ModelBars:
    """What differs from model to model.

    Attributes:
        idle: ultrafast against standard, both idle.
        loaded: ultrafast against a standard stream beside it, edit-like turns, median.
    """

    idle: float
    loaded: float


BARS: Mapping[str, ModelBars] = {
    "gemma-3-270m": ModelBars(idle=5.0, loaded=14.0),
    "smollm2-135m-instruct": ModelBars(idle=1.3, loaded=12.0),
}
LOADED_LOW = 10.0
"""The same at the 5th percentile."""
LOADED_PRIORITY = 3.0
LOADED_FREE_TEXT = 8.0
SHARE_KEPT = 0.9
"""Ultrafast loaded against idle: of its share. Also total throughput: of what share and load leave to expect."""
BATCH = 5.6
TOTAL_EDITS = 0.75
"""Total throughput with one ultrafast stream against none, on edit-like turns of the model that drafts well."""
DRAFTS_WELL = "gemma-3-270m"
LOOKAHEAD_TOTAL = 0.95
FIRST_TOKEN_STEPS = 2.0
SAMPLED = 0.9
"""Rate at temperature 0.7 against greedy."""
PREDICTED = 0.15
"""Median error of predicted rates."""


def expected_total(alone: float, share: float, idle: float) -> float:
    """Least total rate beside an ultrafast stream: the load gives up the share, the stream brings as much of its own
    rate; a part of SHARE_KEPT of that."""
    return SHARE_KEPT * ((1.0 - share) * alone + share * idle)
