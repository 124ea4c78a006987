"""The benchmark's half of the line protocol: a worker process that computes only while it is called."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.engine.arms.lines import cpu_seconds_of

CALL_TIMEOUT_S = 900.0
LOG_TAIL = 2000


class WorkerFailed(RuntimeError):
    """A worker ended, hung or answered with an error; the message carries the end of its log."""


class Worker:
    """A process that answers calls over its standard input and output.

    Its standard error goes to an unnamed file whose end is shown when it fails.
    """

    def __init__(self, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            list(command),
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._pending = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def call(self, op: str, timeout_s: float = CALL_TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        """Run one operation and wait for its answer. Raises WorkerFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, "args": arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure(f"ended before it could run {op}") from None
        answer: dict[str, Any] = json.loads(self._line(op, timeout_s))
        if "error" in answer:
            raise WorkerFailed(f"Worker {self.name} failed in {op}:\n{answer['error']}")
        return answer["ok"]

    def _line(self, op: str, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(timeout_s):
                    raise self._failure(f"gave no answer to {op} within {timeout_s:.0f} s")
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    raise self._failure(f"ended while it ran {op}")
                self._pending += chunk
        line, self._pending = self._pending.split(b"\n", 1)
        return line

    def _failure(self, what: str) -> WorkerFailed:
        self._log.seek(0)
        tail = self._log.read()[-LOG_TAIL:].decode(errors="replace")
        return WorkerFailed(f"Worker {self.name} {what}. The end of its log:\n{tail or '(empty)'}")

    def cpu_seconds(self) -> float:
        """Processor time that the process has taken so far, all threads, in seconds."""
        return cpu_seconds_of(self._process.pid)

    def close(self) -> None:
        """End the process: by closing its input, or by force when that does not help."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
