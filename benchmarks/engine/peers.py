"""The peers' own environments: llama-cpp-python, built from source for one instruction set.

A peer never enters Gearshift's environment. An existing one can be named instead of building (`--llama-python`).
The default build of llama.cpp takes what the processor has, AMX included, which dies with an illegal instruction on
some machines; so the instruction sets are named one by one and AMX never is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

LLAMA_VERSION = "0.3.36"
AVX2_FLAGS = ("avx2", "fma", "f16c", "bmi2")
AVX2_OPTIONS = ("GGML_AVX", "GGML_AVX2", "GGML_FMA", "GGML_F16C", "GGML_BMI2")
AVX512_FLAGS = ("avx512f", "avx512bw", "avx512vl")
AVX512_EXTRAS = {
    "avx512_vbmi": "GGML_AVX512_VBMI",
    "avx512_vnni": "GGML_AVX512_VNNI",
    "avx512_bf16": "GGML_AVX512_BF16",
}
"""Options that only some AVX-512 processors can run."""
READY = "ready"


def build_for(isa: str, flags: Sequence[str]) -> str:
    """The llama.cpp build that stands against one of our paths: AVX-512 for AMX and AVX-512, else AVX2.

    Raises ValueError when the processor cannot run even the AVX2 build.
    """
    if isa in ("amx", "avx512") and _has(flags, AVX512_FLAGS) and _has(flags, AVX2_FLAGS):
        return "avx512"
    if _has(flags, AVX2_FLAGS):
        return "avx2"
    raise ValueError(f"llama.cpp's AVX2 build needs {', '.join(AVX2_FLAGS)}; this processor has {', '.join(flags)}.")


def options_of(build: str, flags: Sequence[str]) -> tuple[str, ...]:
    """CMake options that are switched on for a build on a processor with these flags."""
    if build == "avx2":
        return AVX2_OPTIONS
    return (*AVX2_OPTIONS, "GGML_AVX512", *(option for flag, option in AVX512_EXTRAS.items() if flag in flags))


def _has(flags: Sequence[str], needed: Sequence[str]) -> bool:
    return all(flag in flags for flag in needed)


def llama_python(build: str, flags: Sequence[str], folder: Path) -> Path:
    """The Python of the environment that holds llama.cpp in a build, made on the first call (about 10 minutes)."""
    target = folder / f"llama-{build}"
    python = target / "bin" / "python"
    if (target / READY).exists():
        return python
    print(f"Building llama-cpp-python {LLAMA_VERSION} for {build} in {target} (about 10 minutes) ...", file=sys.stderr)
    venv.create(target, with_pip=True, clear=True)
    arguments = " ".join(["-DGGML_NATIVE=OFF", *(f"-D{option}=ON" for option in options_of(build, flags))])
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", f"llama-cpp-python=={LLAMA_VERSION}"],
        env={**os.environ, "CMAKE_ARGS": arguments, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 2)},
        stdout=sys.stderr,
        check=True,
    )
    (target / READY).write_text(arguments + "\n")
    return python
