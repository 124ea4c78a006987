"""Our kernel and engine on one instruction-set path, in turns with llama.cpp built for the same.

llama.cpp counts with its best weight format, chosen measure by measure in a first round that is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.engine.plans import Plan, plans
from benchmarks.engine.rounds import Arm, Rounds
from benchmarks.engine.run import FORMATS, Run
from benchmarks.engine.samples import Slice, best_arm, without_slow
from benchmarks.engine.worker import Worker

SELECTION_ROUND = -1
"""Round number of the slices that only choose the peer's format."""
OPERATIONS = {"kernel": ("decode", "rows", "prefill"), "engine": ("decode", "prefill")}
"""What our arms offer; the engine takes no rows of its own choosing."""


@dataclass(slots=True)
class Comparison:
    """What one path's run brought.

    Attributes:
        isa: our path.
        ours: names of our arms.
        slices: all of them, the selection's and the slow ones included.
        best_peer: measure -> llama.cpp's best arm.
        weight_bytes: bytes that one of our steps must read.
        bandwidths: bytes per second of the streaming read, one sample a round.
        about: versions and settings of the arms.
    """

    isa: str
    ours: list[str] = field(default_factory=list[str])
    slices: list[Slice] = field(default_factory=list[Slice])
    best_peer: dict[str, str] = field(default_factory=dict[str, str])
    weight_bytes: int = 0
    bandwidths: list[float] = field(default_factory=list[float])
    about: dict[str, Any] = field(default_factory=dict[str, Any])

    def proper(self) -> list[Slice]:
        """The slices of the comparison, without those of the selection."""
        return [each for each in self.slices if each.round != SELECTION_ROUND]

    def counted(self) -> list[Slice]:
        """The slices that count: of the comparison proper, and not slow."""
        return without_slow(self.proper())


def measure_path(run: Run, isa: str) -> Comparison:
    """Run one path with its peer."""
    comparison = Comparison(isa)
    with ExitStack() as stack:
        workers: list[Worker] = []

        def start(worker: Worker) -> Worker:
            workers.append(stack.enter_context(worker))
            return worker

        model = run.model_file(run.model)
        ours: dict[str, list[Arm]] = {"decode": [], "rows": [], "prefill": []}
        for name in run.arms:
            worker = start(run.our_worker(name, isa))
            about = worker.call("load", name="model", path=str(model), threads=run.threads)
            comparison.about[name] = about
            comparison.ours.append(name)
            comparison.weight_bytes = about["weight_bytes"]
            for operation in OPERATIONS[name]:
                ours[operation].append(Arm(name, worker, {"model": "model"}))
        peers: list[Arm] = []
        # The portable path is for information: no build of llama.cpp goes without vectors.
        if run.with_peers and isa != "portable":
            llama = start(run.llama_worker(isa))
            comparison.about["llama.cpp"] = run.load_llama(llama, model)
            peers = [Arm(f"llama.cpp {kind}", llama, {"model": kind}) for kind in FORMATS]
        rounds = Rounds(run.probe, workers)
        rounds.slices = comparison.slices
        chosen = _choose_peers(comparison, rounds, peers)
        for number in range(run.rounds):
            comparison.bandwidths.append(run.probe.read_bandwidth(comparison.weight_bytes))
            for plan in plans(run.quick):
                if ours[plan.op]:
                    rounds.palindrome(plan, [*ours[plan.op], *chosen.get(plan.key, ())], number)
    return comparison


def _choose_peers(comparison: Comparison, rounds: Rounds, peers: Sequence[Arm]) -> Mapping[str, list[Arm]]:
    """Plan -> the peer's arms that are best in one of its measures; short slices decide."""
    chosen: dict[str, list[Arm]] = {}
    if not peers:
        return chosen
    by_name = {arm.name: arm for arm in peers}
    for plan in selection_plans():
        taken = rounds.palindrome(plan, peers, SELECTION_ROUND)
        best = {measure: best_arm(taken, measure, list(by_name)) for measure in taken[0].values}
        comparison.best_peer.update(best)
        chosen[plan.key] = [by_name[name] for name in by_name if name in best.values()]
    return chosen


def selection_plans() -> list[Plan]:
    """The quick plans with shorter prompts: they decide between formats, they are not reported."""
    shorter = {"prefill": {"tokens": 512}, "decode": {"context": 64}, "rows": {"context": 64}}
    return [
        Plan(plan.key, plan.op, {**plan.arguments, **shorter[plan.op]}, plan.fresh_prompt) for plan in plans(quick=True)
    ]
