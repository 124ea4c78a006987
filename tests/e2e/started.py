"""Starts `gearshift serve` as a user would, on a free port, and reads its greeting."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
MODEL = "smollm2-135m-instruct"


@dataclass
class Started:
    """A server's process, its address and what it said."""

    process: subprocess.Popen[str]
    url: str = ""
    said: list[str] = field(default_factory=list[str])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its full name."""
        lines = httpx.get(f"{self.url}/metrics", timeout=30).text.splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


@contextlib.contextmanager
def started(*arguments: str, environment: dict[str, str] | None = None) -> Generator[Started]:
    """A server that answers; it is told to stop, and awaited, at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gearshift", "serve", "--port", "0", *arguments],
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    server = Started(process)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            server.said.append(line)
            if found := re.search(r" on (http://\S+) ", line):
                server.url = found[1]
            if line.startswith("Stop with"):
                break
        assert server.url, f"the server ended with {process.wait()}: {''.join(server.said)}"
        # Nobody else reads what it says further; a full pipe would stop it.
        reader = threading.Thread(target=server.said.extend, args=(process.stdout,))
        reader.start()
        yield server
        process.terminate()
        process.wait()
        reader.join()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
