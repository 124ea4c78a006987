"""Reads tool calls out of an answer while it comes, piece by piece.

Text in front of a call passes through; only what may still become the mark of a call is held back. A call is given
out when it is whole, or, cut short, when the answer ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gearshift.tools.markup import BEGIN, END

Kind = Literal["function", "custom"]

_HEAD = re.compile(r'\n\{"name": (?P<name>"(?:[^"\\]|\\.)*"), "arguments": ')


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A call as it was written; not `whole` when the answer ended inside it."""

    name: str
    arguments: str
    kind: Kind
    whole: bool = True


class CallReader:
    """The reader of one answer.

    Attributes:
        calls: calls read so far.
    """

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        """kinds: the names of the tools on offer."""
        self._kinds = kinds
        self._held = ""
        self._inside = False
        self.calls = 0

    @property
    def holding(self) -> bool:
        """Whether text was taken that did not come out: it is in a call, or may begin one."""
        return self._inside or bool(self._held)

    def push(self, text: str) -> tuple[str, list[ReadCall]]:
        """The text that is certain to be outside of calls, and the calls that this piece made whole."""
        self._held += text
        outside, found = "", list[ReadCall]()
        while True:
            if not self._inside:
                at = self._held.find(BEGIN)
                if at < 0:
                    keep = len(self._held) - _overlap(self._held)
                    # Between calls there is nothing but the line's end that parts them.
                    outside += "" if self.calls and not self._held[:keep].strip() else self._held[:keep]
                    self._held = self._held[keep:]
                    return outside, found
                before, self._held = self._held[:at], self._held[at + len(BEGIN) :]
                outside += "" if self.calls and not before.strip() else before
                self._inside = True
            at = self._held.find(END)
            if at < 0:
                return outside, found
            body, self._held = self._held[:at], self._held[at + len(END) :]
            self._inside = False
            self.calls += 1
            found.append(self._read(body) or ReadCall("", body.strip(), "function", whole=False))

    def finish(self) -> tuple[str, ReadCall | None]:
        """When nothing more comes: the text that was held back, and the call that was cut if its name is known."""
        held, self._held = self._held, ""
        if not self._inside:
            return held, None
        cut = self._read(held, whole=False)
        if cut is not None:
            self.calls += 1
        return "", cut

    def _read(self, body: str, whole: bool = True) -> ReadCall | None:
        if head := _HEAD.match(body):
            arguments = body[head.end() :]
            return ReadCall(
                json.loads(head["name"]), arguments[:-1] if whole else _trimmed(arguments), "function", whole
            )
        first, line, text = body.removeprefix("\n").partition("\n")
        if self._kinds.get(first) == "custom" and line:
            return ReadCall(first, text, "custom", whole)
        return None


def _trimmed(arguments: str) -> str:
    """Arguments of a cut call without the brace of the call itself, when these are whole and that brace is there."""
    try:
        _, end = json.JSONDecoder().raw_decode(arguments)
    except (ValueError, RecursionError):
        return arguments
    return arguments[:end]


def _overlap(text: str) -> int:
    """Length of the longest end of the text that begins the mark of a call."""
    return next((n for n in range(min(len(BEGIN) - 1, len(text)), 0, -1) if BEGIN.startswith(text[-n:])), 0)
