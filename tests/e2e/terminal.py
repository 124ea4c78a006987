"""A program on a terminal of its own, typed at and looked at as a person would."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

# What a terminal answers when it is asked where its cursor is, what it is, and its colours.
_ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;c",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
_CONTROL = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\s+")


class Terminal:
    """The master side of a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = b""

    @property
    def text(self) -> str:
        """Everything shown so far, without control codes and white space."""
        return _CONTROL.sub(b"", self._seen).decode(errors="replace")

    def look(self, seconds: float) -> None:
        """Take in what is shown within this time, or what comes first."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            return
        fresh = os.read(self._descriptor, 1 << 16)
        self._seen += fresh
        for question, answer in _ANSWERS.items():
            if question in fresh:
                os.write(self._descriptor, answer)

    def until(self, condition: Callable[[], bool]) -> None:
        """Watch until something is so; the test's own timeout is the limit."""
        while not condition():
            self.look(0.05)

    def press(self, keys: bytes) -> None:
        """Press keys, one after the other, each shown before the next."""
        for key in keys:
            os.write(self._descriptor, bytes([key]))
            self.look(0.05)

    def enter(self, line: str) -> None:
        """Type a line, see it there, and send it."""
        before = len(self.text)
        self.press(line.encode())
        self.until(lambda: line[-1] in self.text[before:])
        # A key that follows too closely is taken for a part of pasted text.
        for _ in range(10):
            self.look(0.05)
        self.press(b"\r")


@contextlib.contextmanager
def on_terminal(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Generator[Terminal]:
    """A program on a terminal of 120 by 40, ended at the end."""
    process, descriptor = pty.fork()
    if process == 0:
        try:
            os.chdir(folder)
            os.execvpe(arguments[0], list(arguments), dict(environment))
        finally:
            os._exit(127)
    try:
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        yield Terminal(descriptor)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(descriptor)
