"""How fast the machine is just now: a fixed loop between slices, and the streaming read bandwidth.

The loops are C++ (`probe.cpp`), compiled once into the benchmark's cache folder; numpy would measure its own dispatch.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from pathlib import Path

from benchmarks.engine.samples import quantile

SOURCE = Path(__file__).with_name("probe.cpp")
PROBE_LOOPS = 1_500_000
"""About 5 ms of dependent multiplications on a 3 GHz core."""
PROBE_BYTES = 64 << 20
"""About 3 ms at 20 GB/s: larger than the caches of two cores."""
BANDWIDTH_PASSES = 7


class Probe:
    """The compiled loops, for a fixed number of threads."""

    def __init__(self, cache: Path, threads: int) -> None:
        self._library = ctypes.CDLL(str(_compile(cache)))
        self._library.probe.restype = ctypes.c_double
        self._library.probe.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
        self._library.read_passes.restype = ctypes.c_int
        self._library.read_passes.argtypes = [
            ctypes.c_longlong,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_double),
        ]
        self._threads = threads
        self.seconds()

    def seconds(self) -> float:
        """Seconds of one probe on all threads at once."""
        return float(self._library.probe(self._threads, PROBE_LOOPS, PROBE_BYTES))

    def read_bandwidth(self, size: int) -> float:
        """Bytes per second when all threads stream over a buffer of `size` bytes: the best of a few passes.

        The best, because it stands for what the memory can do; a lower one would flatter the engines.
        """
        seconds = (ctypes.c_double * BANDWIDTH_PASSES)()
        if self._library.read_passes(size, self._threads, BANDWIDTH_PASSES, seconds) != 0:
            raise MemoryError(f"No memory for a bandwidth measurement over {size:,} bytes.")
        return size / quantile(list(seconds), 0.0)


def _compile(cache: Path) -> Path:
    """The shared library of `probe.cpp` for this processor, from the cache or built now."""
    key = hashlib.sha256(SOURCE.read_bytes() + Path("/proc/cpuinfo").read_bytes()[:600]).hexdigest()[:16]
    target = cache / f"probe-{key}.so"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        built = target.with_suffix(f".{os.getpid()}")
        compiler = os.environ.get("CXX", "g++")
        subprocess.run(
            [compiler, "-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread", str(SOURCE), "-o", built],
            check=True,
        )
        built.rename(target)
    return target
