"""The worker's half of the line protocol: one JSON object a line in, one a line out.

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
    """Resident memory of this process in bytes: all of it, and the part that is mapped from files."""
    fields: dict[str, int] = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon", "RssFile", "VmHWM"):
            fields[name] = int(value.split()[0]) * 1024
    return {
        "rss": fields["VmRSS"],
        "anonymous": fields["RssAnon"],
        "mapped": fields["RssFile"],
        "peak": fields["VmHWM"],
    }
