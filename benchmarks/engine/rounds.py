"""Running the arms in turns: forward and back (A B B A), with a probe before and after every slice.

All workers are alive at once and only one of them computes; what the waiting ones took of the processor is recorded
with every slice. Nothing is judged here: every slice is kept, slow or not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from benchmarks.engine.plans import Plan, values_from
from benchmarks.engine.probe import Probe
from benchmarks.engine.samples import Slice
from benchmarks.engine.worker import Worker


@dataclass(frozen=True, slots=True)
class Arm:
    """One engine with one model, as a worker runs it.

    Attributes:
        name: the arm's name in the results.
        worker: its process; several arms may share one.
        arguments: handed to every operation (the name of the loaded model).
    """

    name: str
    worker: Worker
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


class Rounds:
    """Measures plans on arms and collects the slices."""

    def __init__(self, probe: Probe, workers: Sequence[Worker]) -> None:
        self._probe = probe
        self._workers = workers
        self._prompt_key = 10_000
        self.slices: list[Slice] = []

    def palindrome(self, plan: Plan, arms: Sequence[Arm], round_number: int) -> list[Slice]:
        """Every arm once forward and once backward."""
        taken: list[Slice] = []
        for turn, order in enumerate((list(arms), list(reversed(arms)))):
            # One prompt for all arms of a turn, and never one that an arm has seen.
            self._prompt_key += 1
            taken += [self._slice(plan, arm, round_number, turn) for arm in order]
        self.slices += taken
        shown = ", ".join(f"{arm.name} {_rates(taken, arm.name)}" for arm in arms)
        print(f"  round {round_number} {plan.key}: {shown}", file=sys.stderr, flush=True)
        return taken

    def _slice(self, plan: Plan, arm: Arm, round_number: int, turn: int) -> Slice:
        fresh = {"key": self._prompt_key} if plan.fresh_prompt else {}
        before = self._probe.seconds()
        idle_before = self._others_cpu(arm.worker)
        started = perf_counter()
        answer = arm.worker.call(plan.op, **plan.arguments, **fresh, **arm.arguments)
        seconds = perf_counter() - started
        idle = self._others_cpu(arm.worker) - idle_before
        after = self._probe.seconds()
        return Slice(
            plan=plan.key,
            arm=arm.name,
            round=round_number,
            turn=turn,
            values=values_from(plan, answer),
            probe_s=max(before, after),
            seconds=seconds,
            idle_cpu_s=idle,
            notes=answer.get("notes", {}),
        )

    def _others_cpu(self, busy: Worker) -> float:
        return sum(worker.cpu_seconds() for worker in self._workers if worker is not busy)


def _rates(slices: Sequence[Slice], arm: str) -> str:
    return " / ".join(" ".join(f"{value:.0f}" for value in each.values.values()) for each in slices if each.arm == arm)
