"""Slices made by hand: what a run with known rates would bring."""

from __future__ import annotations

from benchmarks.engine.samples import Slice
from benchmarks.gears.measuring import Collected
from benchmarks.gears.report import ModelRun
from benchmarks.gears.turns import CodingTurn, Kind

NAMES: tuple[Kind, ...] = ("copy", "explain")


def turn(kind: Kind) -> CodingTurn:
    return CodingTurn(f"{kind}-0", kind, "prompt", "stop", 100)


def collected() -> Collected:
    found = Collected({f"{kind}-0": turn(kind) for kind in NAMES})
    found.expected = {name: list(range(40)) for name in found.turns}
    found.sort_out(3)
    return found


def add(found: Collected, plan: str, arm: str, at: int, round_number: int = 0, **values: float) -> None:
    found.slices.append(Slice(plan, arm, round_number, at, values, 0.01, 1.0, 0.0, {}))


def run_of(found: Collected, model: str = "gemma-3-270m", amx: bool = True) -> ModelRun:
    return ModelRun(model, "amx", amx, 32, NAMES, found, weight_bytes=100_000_000, bandwidths=[10e9])
