"""The AVX2 linear layers give the bits of the plain C++ ones: builds and runs the kernel's own check."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from gearshift import _kernel

CHECK = Path(__file__).parents[2] / "kernel" / "check"


@pytest.fixture(scope="module")
def linear_check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("AVX2 exists on x86 only")
    if shutil.which("g++") is None or shutil.which("make") is None:
        pytest.skip("needs g++ and make to build the check")
    build = tmp_path_factory.mktemp("linear_check")
    subprocess.run(["make", "-s", "-j2", "-C", str(CHECK), f"BUILD={build}"], check=True)
    return build / "linear_check"


def agreeing_paths(check: Path, cases: int) -> list[str]:
    run = subprocess.run([str(check), str(cases)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("all paths agree:")
    return run.stdout.split(":")[1].split()


def test_paths_agree(linear_check: Path) -> None:
    paths = agreeing_paths(linear_check, 40)
    assert "portable" in paths
    assert ("avx2" in paths) == ("avx2" in _kernel.isa_paths())


@pytest.mark.long
def test_paths_agree_over_thousands_of_shapes(linear_check: Path) -> None:
    agreeing_paths(linear_check, 5000)
