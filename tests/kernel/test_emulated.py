"""The AVX-512 and AMX paths on machines that have neither: the same sources over emulated instructions, compared bit
for bit with the portable path (kernel/emulate). Proves the integers and the memory accesses, not the speed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

EMULATE = Path(__file__).resolve().parents[2] / "kernel" / "emulate"


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None or shutil.which("make") is None:
        pytest.skip(f"needs make and a C++ compiler ({compiler}, or set CXX)")
    folder = tmp_path_factory.mktemp("emulate")
    command = ["make", "-j2", "-C", str(EMULATE), f"BUILD={folder}", f"CXX={compiler}"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "check"


def equal_to_portable(check: Path, seed: int, cases: int) -> None:
    ran = subprocess.run([str(check), str(seed), str(cases)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{cases} cases" in ran.stdout


def test_emulated_paths_equal_the_portable_one(check: Path) -> None:
    equal_to_portable(check, 1, 60)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_emulated_paths_equal_the_portable_one_at_length(check: Path, seed: int) -> None:
    equal_to_portable(check, seed, 1000)
