"""The statistics of the benchmark: quantiles, the rule that drops slices, pairs."""

from __future__ import annotations

import math
import statistics

import pytest
from benchmarks.engine.samples import (
    SLOW_FACTOR,
    Slice,
    best_arm,
    idle_share,
    inner_ratios,
    paired_ratios,
    quantile,
    slow_limit,
    spread,
    values_of,
    without_slow,
)
from hypothesis import given
from hypothesis import strategies as st


def slice_of(
    arm: str, value: float, round_number: int = 0, turn: int = 0, probe_s: float = 0.01, measure: str = "decode-1"
) -> Slice:
    return Slice(measure, arm, round_number, turn, {measure: value}, probe_s, seconds=2.0, idle_cpu_s=0.0, notes={})


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_quartiles_are_those_of_the_standard_library(values: list[float]) -> None:
    expected = statistics.quantiles(values, n=4, method="inclusive")
    found = [quantile(values, fraction) for fraction in (0.25, 0.5, 0.75)]
    assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(found, expected, strict=True))


def test_a_quantile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        quantile([], 0.5)
    assert spread([]) is None


def test_slow_slices_are_left_out_by_their_probe_whatever_they_measured() -> None:
    fast = [slice_of("a", 1.0, probe_s=0.010) for _ in range(3)]
    border = slice_of("a", 5.0, probe_s=0.010 * SLOW_FACTOR)
    slow = slice_of("a", 100.0, probe_s=0.0131)
    assert math.isclose(slow_limit([*fast, border, slow]), 0.013)
    kept = without_slow([*fast, border, slow])
    assert border in kept
    assert slow not in kept
    assert without_slow([]) == []


def test_ratios_pair_slices_of_the_same_round_and_turn_only() -> None:
    slices = [
        slice_of("ours", 400.0, 0, 0),
        slice_of("peer", 100.0, 0, 0),
        slice_of("peer", 50.0, 0, 1),
        slice_of("ours", 100.0, 0, 1),
        slice_of("ours", 900.0, 1, 0),  # its partner was slow and is gone
        slice_of("peer", 10.0, 1, 1),
    ]
    assert paired_ratios(slices, "decode-1", "ours", "peer") == [4.0, 2.0]
    assert paired_ratios(slices, "decode-8", "ours", "peer") == []
    assert values_of(slices, "peer", "decode-1") == [100.0, 50.0, 10.0]


def test_step_multiples_come_from_within_one_slice() -> None:
    both = Slice("rows", "ours", 0, 0, {"rows-1": 500.0, "rows-4": 1600.0}, 0.01, 1.0, 0.0, {})
    only_one = Slice("rows", "ours", 0, 1, {"rows-1": 100.0}, 0.01, 1.0, 0.0, {})
    assert inner_ratios([both, only_one], "ours", "rows-4", "rows-1") == [3.2]


def test_the_peer_counts_with_its_best_format_by_median() -> None:
    slices = [slice_of("Q4_0", 100.0), slice_of("Q4_0", 110.0, turn=1), slice_of("Q8_0", 90.0), slice_of("Q8_0", 95.0)]
    assert best_arm(slices, "decode-1", ["Q8_0", "Q4_0"]) == "Q4_0"
    with pytest.raises(ValueError, match="Q4_1"):
        best_arm(slices, "decode-1", ["Q4_1"])


def test_idle_share_is_the_worst_slice() -> None:
    calm = slice_of("a", 1.0)
    busy = Slice("decode-1", "a", 1, 0, {"decode-1": 1.0}, 0.01, seconds=2.0, idle_cpu_s=0.5, notes={})
    assert idle_share([calm, busy]) == 0.25
    assert idle_share([]) == 0.0
