"""Workers as real processes, and the turns in which they run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.engine.plans import Plan
from benchmarks.engine.probe import Probe
from benchmarks.engine.rounds import Arm, Rounds
from benchmarks.engine.worker import Worker, WorkerFailed

ROOT = Path(__file__).parents[2]
DECODE = Plan("decode-2", "decode", {"streams": 2, "context": 0, "new": 5, "warmup": 0})


def start(name: str) -> Worker:
    return Worker(name, [sys.executable, "-m", "tests.benchmarks.counting_arm"], ROOT, {})


@pytest.fixture
def worker() -> Iterator[Worker]:
    with start("counting") as started:
        yield started


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return Probe(tmp_path_factory.mktemp("probe"), threads=2)


def test_calls_are_answered_in_order_and_prints_do_not_disturb(worker: Worker) -> None:
    answers = [worker.call("decode", model="m", **DECODE.arguments) for _ in range(3)]
    assert [answer["notes"]["calls"] for answer in answers] == [1, 2, 3]
    assert answers[0]["tokens"] == 10


def test_a_failing_call_tells_why_and_the_worker_lives_on(worker: Worker) -> None:
    with pytest.raises(WorkerFailed, match="on demand"):
        worker.call("fail")
    assert worker.call("memory")["rss"] > 1 << 20


def test_a_worker_that_ends_leaves_its_last_words(worker: Worker) -> None:
    with pytest.raises(WorkerFailed, match=r"(?s)ended while it ran end.*last words"):
        worker.call("end")


def test_a_worker_that_hangs_is_given_up(worker: Worker) -> None:
    with pytest.raises(WorkerFailed, match="no answer to sleep"):
        worker.call("sleep", timeout_s=0.05, seconds=1.0)


def test_processor_time_of_a_worker_is_seen_from_outside(worker: Worker) -> None:
    before = worker.cpu_seconds()
    while worker.cpu_seconds() == before:
        worker.call("burn", loops=1_000_000)


def test_arms_run_forward_and_back_with_a_probe_for_every_slice(probe: Probe) -> None:
    with start("a") as first, start("b") as second:
        arms = [Arm("ours", first, {"model": "x"}), Arm("peer", second, {"model": "y"})]
        rounds = Rounds(probe, [first, second])
        slices = rounds.palindrome(DECODE, arms, round_number=4)
    assert [(each.arm, each.round, each.turn) for each in slices] == [
        ("ours", 4, 0),
        ("peer", 4, 0),
        ("peer", 4, 1),
        ("ours", 4, 1),
    ]
    assert all(each.values == {"decode-2": 10.0} for each in slices)
    assert all(each.probe_s > 0 for each in slices)
    assert rounds.slices == slices


def test_the_probe_measures_a_bandwidth_that_memory_can_have(probe: Probe) -> None:
    assert 1e8 < probe.read_bandwidth(32 << 20) < 1e13
