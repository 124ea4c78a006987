"""From token bytes to text, piece by piece: whole UTF-8 characters, and never any part of a stop string.

The text is the same however the bytes are cut into pieces. Which bytes a token stands for is the tokenizer's
business.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """The text of one choice while its tokens arrive.

    A stop string counts as soon as its last character is there; when two end at the same character, the longer
    one counts. Text that may still become a stop string is held back.
    """

    __slots__ = ("_decoder", "_held", "_incomplete", "_stops", "stopped_by")

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = _Utf8Decoder("replace")
        self._incomplete = False
        self._stops = tuple(stops)
        self._held = ""
        self.stopped_by: str | None = None
        """The stop string that ended the text."""

    def push(self, piece: bytes) -> str:
        """The text that is certain after these bytes."""
        if self._incomplete or not piece.isascii():
            text = self._decoder.decode(piece)
            self._incomplete = self._decoder.getstate()[0] != b""
        else:
            text = piece.decode("ascii")
        return self._release(text) if self._stops else text

    def finish(self) -> str:
        """The rest, when no more bytes come: an incomplete character becomes U+FFFD."""
        text = self._decoder.decode(b"", final=True) if self._incomplete else ""
        self._incomplete = False
        if not self._stops:
            return text
        text = self._release(text)
        if self.stopped_by is None:
            text, self._held = text + self._held, ""
        return text

    def _release(self, new: str) -> str:
        """Add new text behind what is held; return what can no longer be part of a stop string."""
        if self.stopped_by is not None:
            return ""
        text = self._held + new
        found = self._first_stop(text)
        if found is not None:
            start, self.stopped_by = found
            self._held = ""
            return text[:start]
        keep = max(_overlap(text, stop) for stop in self._stops)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]

    def _first_stop(self, text: str) -> tuple[int, str] | None:
        matches = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if not matches:
            return None
        _, start, stop = min(matches)
        return start, stop


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` without completing it."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0 and not stop.startswith(text[at:]):
        at = text.find(stop[0], at + 1)
    return len(text) - at if at >= 0 else 0
