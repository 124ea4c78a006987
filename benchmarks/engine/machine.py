"""What a result must say about where it was measured: processor, instruction sets, memory, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the software of a run."""

    processor: str
    cores: int
    flags: tuple[str, ...]
    memory_bytes: int
    load_before: float
    system: str
    python: str
    commit: str
    changed_files: int

    def facts(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


INTERESTING_FLAGS = (
    "avx2",
    "fma",
    "f16c",
    "bmi2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vbmi",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
)


def describe(root: Path) -> Machine:
    """This machine, and the commit of the checkout at `root`."""
    info = _processor_info()
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return Machine(
        processor=info.get("model name", platform.processor() or "unknown"),
        cores=len(os.sched_getaffinity(0)),
        flags=tuple(flag for flag in INTERESTING_FLAGS if flag in info.get("flags", "").split()),
        memory_bytes=int(memory.split()[1]) * 1024,
        load_before=os.getloadavg()[0],
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        commit=_git(root, "rev-parse", "HEAD") or "unknown",
        changed_files=len(changed.splitlines()),
    )


def _processor_info() -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
