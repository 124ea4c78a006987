"""What every part of a run shares: the settings, the machine, the probe, and how workers are started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engine.machine import Machine
from benchmarks.engine.peers import build_for, llama_python
from benchmarks.engine.probe import Probe
from benchmarks.engine.worker import Worker
from gearshift.engine.local.download import model_path

OUR_ARMS = ("kernel", "engine")
"""The bare kernel, and the whole engine in process; both are modules in `arms/`."""
FORMATS = ("Q4_0", "Q4_1", "Q8_0")
"""llama.cpp's candidates; those that are not the model file's own type are requantised from it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A finished part: its Markdown, and everything behind it as plain data."""

    name: str
    markdown: str
    data: Any


@dataclass(frozen=True, slots=True)
class Run:
    """Settings of a run.

    Attributes:
        isa: paths to compare; None for all that the machine has.
        arms: which of ours to compare.
        model, long_model: catalogue names or GGUF files.
        llama_python: a Python that has llama_cpp; None to build one per path under `peers`.
    """

    root: Path
    machine: Machine
    probe: Probe
    threads: int
    quick: bool
    rounds: int
    isa: Sequence[str] | None
    arms: Sequence[str]
    model: str
    long_model: str
    llama_python: Path | None
    with_peers: bool
    peers: Path
    cache: Path

    def our_worker(self, arm: str, isa: str = "") -> Worker:
        """A worker of ours (a module in `arms/`) on one path; the best path when it is empty."""
        name = f"{arm} {isa}".strip()
        return self._worker(name, arm, Path(sys.executable), {"GEARSHIFT_ISA": isa} if isa else {})

    def llama_worker(self, isa: str) -> Worker:
        """llama.cpp, built for the same path."""
        python = self.llama_python
        if python is None:
            python = llama_python(build_for(isa, self.machine.flags), self.machine.flags, self.peers)
        return self._worker("llama.cpp", "llama_cpp", python, {})

    def _worker(self, name: str, arm: str, python: Path, environment: dict[str, str]) -> Worker:
        # An absolute path that is not resolved: resolving a virtual environment's link would leave the environment.
        command = [str(python.absolute()), "-m", f"benchmarks.engine.arms.{arm}"]
        return Worker(name, command, self.root, environment)

    def model_file(self, name: str) -> Path:
        """The GGUF file of a catalogue name or path, fetched when it is not in the cache folder yet."""
        return model_path(name)

    def load_llama(self, worker: Worker, model: Path) -> dict[str, dict[str, Any]]:
        """Load every format of a model; what each load reported, by format."""
        self.cache.mkdir(parents=True, exist_ok=True)
        about: dict[str, dict[str, Any]] = {}
        for kind in FORMATS:
            path = model
            if kind not in model.name:
                path = self.cache / f"{model.stem}.{kind}.gguf"
                worker.call("quantize", source=str(model), target=str(path), kind=kind, threads=self.threads)
            about[kind] = worker.call("load", name=kind, path=str(path), threads=self.threads)
        return about
