"""Server-sent events as bytes. A stream of small JSON objects differs from event to event in one string or two, so an
event is encoded once with a slot in the place of the string, and afterwards only the string is encoded.
"""

from __future__ import annotations

import msgspec

_encode = msgspec.json.Encoder().encode

SLOT = "\x00slot\x00"
"""Stands for the text in an event from which a template is made."""
SLOT_NUMBER = 0x5107_5107_5107
"""Stands for a sequence number."""

DONE = b"data: [DONE]\n\n"


def data(event: object) -> bytes:
    """An event without a name."""
    return b"data: " + _encode(event) + b"\n\n"


def named(name: str, event: object) -> bytes:
    """An event with a name, as the responses endpoint sends them."""
    return b"event: " + name.encode() + b"\ndata: " + _encode(event) + b"\n\n"


class TextTemplate:
    """The bytes of an event around its one changing text."""

    def __init__(self, event: bytes) -> None:
        self._before, self._after = event.split(_encode(SLOT))

    def fill(self, text: str) -> bytes:
        """The event with this text."""
        return self._before + _encode(text) + self._after


class NumberedTemplate:
    """The bytes of an event around its sequence number and its text, in that order."""

    def __init__(self, event: bytes) -> None:
        self._before, rest = event.split(_encode(SLOT_NUMBER))
        self._between, self._after = rest.split(_encode(SLOT))

    def fill(self, number: int, text: str) -> bytes:
        """The event with this number and this text."""
        return b"%b%d%b%b%b" % (self._before, number, self._between, _encode(text), self._after)
