"""The peer: llama.cpp's server with n-gram drafts, in a process and an environment of its own, in turns with us.

xllamacpp is a wheel that uses AVX2 at most. Which way of drafting and which lengths count is chosen by idle rates
in a round that is not counted.
"""

from __future__ import annotations

import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine.samples import Slice
from benchmarks.engine.worker import Worker, WorkerFailed
from benchmarks.gears.measuring import Bench, progress

NAME = "xllamacpp"
VERSION = "2026.10.11549"
CANDIDATES: tuple[tuple[str, int, int], ...] = (
    ("NGRAM_SIMPLE", 4, 15),
    ("NGRAM_SIMPLE", 12, 48),
    ("NGRAM_MAP_K", 4, 15),
)
"""Speculation, tokens looked up, tokens drafted. The second has the peer's own defaults."""
_TURN_TIMEOUT_S = 240.0
_MOST_LOADED_TOKENS = 80
"""The peer's answers are cut here beside the load: whole ones would take minutes."""


@dataclass(slots=True)
class PeerRun:
    """What came of the peer.

    Attributes:
        told: a line on what was measured, or why nothing was.
        chosen: the way of drafting that counts.
        about: what the server said of itself.
    """

    told: str
    chosen: str = ""
    about: dict[str, Any] = field(default_factory=dict[str, Any])


def peer_python(folder: Path) -> Path | None:
    """The Python of the peer's environment, made on the first call; None when it cannot be installed."""
    target = folder / NAME
    python = target / "bin" / "python"
    if (target / "ready").exists():
        return python
    print(f"Installing {NAME} {VERSION} in {target} ...", file=sys.stderr, flush=True)
    try:
        venv.create(target, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", f"{NAME}=={VERSION}"],
            stdout=sys.stderr,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"The peer cannot be installed: {error}", file=sys.stderr)
        return None
    (target / "ready").write_text(VERSION + "\n")
    return python


async def measure_peer(bench: Bench, python: Path | None, root: Path, rounds: int) -> PeerRun:
    """A turn of each of some kinds, idle and beside the load, at the peer and in ultrafast, one after the other."""
    if python is None:
        return PeerRun(f"No peer: {NAME} is not installed.")
    try:
        chosen = _choose(bench, python, root)
        with _worker(python, root) as worker:
            about = _load(worker, bench, chosen, bench.settings.load + 1)
            bench.waiting = worker
            for round_number in range(rounds):
                await _round(bench, worker, round_number)
    except WorkerFailed as error:
        return PeerRun(f"The peer failed, its rows are missing: {str(error).splitlines()[-1]}")
    finally:
        bench.waiting = None
    told = f"{NAME} {VERSION}, {about['system'].strip()}; drafts by {_title(chosen)}, all its streams are equal. "
    told += f"Its answers beside the load are cut at {_MOST_LOADED_TOKENS} tokens."
    return PeerRun(told, _title(chosen), about)


async def _round(bench: Bench, worker: Worker, round_number: int) -> None:
    for name in bench.some()[: 1 if bench.settings.quick else None]:
        _peer_turn(bench, worker, name, "turn", "peer-idle", round_number)
        await bench.idle(name, "ultrafast", round_number, "peer-idle")
        await bench.loaded(name, "ultrafast", round_number, "peer-loaded")
        _peer_turn(bench, worker, name, "loaded_turn", "peer-loaded", round_number)


def _peer_turn(bench: Bench, worker: Worker, name: str, op: str, plan: str, round_number: int) -> None:
    turn = bench.collected.turns[name]
    others = {"streams": bench.settings.load} if op == "loaded_turn" else {}
    most = min(turn.most_tokens, _MOST_LOADED_TOKENS) if others else turn.most_tokens
    waiting, bench.waiting = bench.waiting, None  # it is the one that runs now
    try:
        with bench.slice(plan, NAME, round_number, bench.collected.number(name)) as values:
            values |= worker.call(op, _TURN_TIMEOUT_S, prompt=turn.prompt, stop=turn.stop, most_tokens=most, **others)
    finally:
        bench.waiting = waiting


def _choose(bench: Bench, python: Path, root: Path) -> tuple[str, int, int]:
    """The candidate that is fastest on one turn; with --quick the first."""
    if bench.settings.quick:
        return CANDIDATES[0]
    names = bench.some()[:1]
    rates: dict[tuple[str, int, int], float] = {}
    for candidate in CANDIDATES:
        with _worker(python, root) as worker:
            _load(worker, bench, candidate, 1)
            started = time.perf_counter()
            for name in names:
                _peer_turn(bench, worker, name, "turn", f"peer-choice {_title(candidate)}", -1)
            rates[candidate] = 1 / (time.perf_counter() - started)
    progress("peer: " + ", ".join(f"{_title(each)} {1 / rate:.1f} s" for each, rate in rates.items()))
    return max(rates, key=lambda each: rates[each])


def _load(worker: Worker, bench: Bench, candidate: tuple[str, int, int], streams: int) -> dict[str, Any]:
    speculation, match, most = candidate
    window = 4096 if streams == 1 else 2048
    return worker.call(
        "load",
        path=str(bench.model.path),
        threads=bench.settings.threads,
        streams=streams,
        window=window,
        speculation=speculation,
        match=match,
        most=most,
    )


def _worker(python: Path, root: Path) -> Worker:
    # An absolute path that is not resolved: resolving a virtual environment's link would leave the environment.
    return Worker(NAME, [str(python.absolute()), "-m", "benchmarks.gears.llama_server"], root, {})


def _title(candidate: tuple[str, int, int]) -> str:
    speculation, match, most = candidate
    return f"{speculation.lower().replace('_', '-')} ({match} tokens looked up, {most} drafted)"


def peer_slices(slices: Sequence[Slice]) -> list[Slice]:
    """The slices that count, without those of the choice."""
    return [each for each in slices if each.plan in ("peer-idle", "peer-loaded")]
