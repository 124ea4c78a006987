"""The worker's half of the line protocol: one JSON object a line in, one a line out; and what a process has used.

Runs in every environment of the benchmark, the peers' included, so it needs the standard library only. A worker
blocks on its standard input between two calls and so takes no processor time while others are measured.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Operation = Callable[..., dict[str, Any]]


def serve(operations: Mapping[str, Operation]) -> None:
    """Answer calls until standard input closes.

    A call is `{"op": name, "args": {...}}`; the answer is `{"ok": {...}}` or `{"error": traceback}`.
    """
    # Libraries like to print: they get stderr, and only answers go to the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = {"ok": operations[call["op"]](**call["args"])}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def memory() -> dict[str, Any]:
    """Resident memory of this process (see `memory_of`)."""
    return memory_of("self")


def memory_of(process: int | str) -> dict[str, Any]:
    """Resident memory of a process in bytes: all of it, its anonymous and its mapped part, and the peak."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    parts = {"rss": "VmRSS", "anonymous": "RssAnon", "mapped": "RssFile", "peak": "VmHWM"}
    return {name: int(fields[field].split()[0]) * 1024 for name, field in parts.items()}


def cpu_seconds_of(process: int) -> float:
    """Processor time that a process has taken so far, all threads, in seconds."""
    # The command name, in parentheses, may hold spaces; utime and stime are the 12th and 13th field after it.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
