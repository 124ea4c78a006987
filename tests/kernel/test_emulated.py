"""The AVX-512 and AMX paths on machines that have neither: the same sources over emulated instructions, compared bit
for bit with the portable path (kernel/emulate); and over the real instructions where the machine has them. Emulation
proves the integers and the memory accesses, not the speed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gearshift import _kernel

ROOT = Path(__file__).resolve().parents[2]
# Compiling takes half a minute of a free core, more on a busy machine; the result is kept for the next run.
pytestmark = pytest.mark.timeout(1200)


def build(*options: str) -> Path:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None or shutil.which("make") is None:
        pytest.skip(f"needs make and a C++ compiler ({compiler}, or set CXX)")
    folder = ROOT / "build" / "-".join(["emulate", *options]).lower()
    command = ["make", "-j2", "-C", str(ROOT / "kernel" / "emulate"), f"BUILD={folder}", f"CXX={compiler}", *options]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "check"


def equal_to_portable(check: Path, seed: int, cases: int, *paths: str) -> None:
    ran = subprocess.run([str(check), str(seed), str(cases), *paths], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.split() == [str(cases), "cases", "equal", "portable:", *paths]


def test_emulated_paths_equal_the_portable_one() -> None:
    equal_to_portable(build(), 1, 100, "avx512", "amx")


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_emulated_paths_equal_the_portable_one_at_length(seed: int) -> None:
    equal_to_portable(build(), seed, 1000, "avx512", "amx")


def test_real_paths_equal_the_portable_one() -> None:
    granted = [path for path in ("avx512", "amx") if path in _kernel.isa_paths()]
    if not granted:
        pytest.skip("this machine grants neither AVX-512 nor AMX")
    equal_to_portable(build("NATIVE=1"), 1, 300, *granted)
