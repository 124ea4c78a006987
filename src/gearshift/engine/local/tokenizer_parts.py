"""Cuts text at the tokens that are matched literally (control tokens, user-defined ones) before any merging.

The order is llama.cpp's: the longest token text is matched first over the whole text, then the next, each from
left to right in what is still free. What lies between the matches is the tokenizers' business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_PREFIX = 6
"""Characters by which token texts are grouped: a text that lacks the prefix lacks all of the group, and thousands
of `<unused...>` need one look."""


class Literals:
    """A set of token texts to be found in texts."""

    def __init__(self, texts: Mapping[str, int]) -> None:
        """texts: token text -> id; an empty text is left out."""
        groups: dict[str, list[str]] = {}
        for text in texts:
            if text:
                groups.setdefault(text[:_PREFIX], []).append(text)
        self._groups = list(groups.items())
        self._ids = dict(texts)

    @property
    def texts(self) -> Collection[str]:
        """The token texts."""
        return self._ids.keys()

    def split(self, text: str) -> list[str | int]:
        """The text as free pieces (str, never empty) and token ids, in order."""
        present = [token for prefix, group in self._groups if prefix in text for token in group if token in text]
        if not present:
            return [text] if text else []
        present.sort(key=lambda token: (-len(token), self._ids[token]))
        taken = bytearray(len(text))
        found: list[tuple[int, str]] = []
        for token in present:
            _take(text, token, taken, found)
        found.sort()
        parts: list[str | int] = []
        at = 0
        for start, token in found:
            if start > at:
                parts.append(text[at:start])
            parts.append(self._ids[token])
            at = start + len(token)
        if at < len(text):
            parts.append(text[at:])
        return parts


def _take(text: str, token: str, taken: bytearray, found: list[tuple[int, str]]) -> None:
    """Take every free occurrence of one token, from left to right."""
    length = len(token)
    mark = b"\1" * length
    at = text.find(token)
    while at >= 0:
        blocked = taken.rfind(1, at, at + length)
        if blocked < 0:
            taken[at : at + length] = mark
            found.append((at, token))
            after = at + length
        else:
            # Go on behind the whole taken stretch, so that long runs stay quick.
            after = taken.find(0, blocked)
            if after < 0:
                return
        at = text.find(token, after)
