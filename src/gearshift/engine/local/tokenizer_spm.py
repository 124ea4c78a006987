"""SentencePiece vocabularies as GGUF files carry them: tokens with scores, no merges, bytes as a fallback.

Merging is llama.cpp's: of all neighbouring pairs that form a token the one with the best score is joined, the
leftmost at equal scores, until none is left. Text is cut beforehand where no token can reach across, and short
pieces are remembered, so the loop runs over words, not over documents. Literal tokens have been cut out before.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping

from gearshift.engine.local.gguf import Gguf

SPACE = "▁"
_REMEMBERED_CHARS = 48
_REMEMBERED_PIECES = 1 << 16
# How many bytes UTF-8 gives a character, by the high half of its first byte; stray bytes count as one.
_LENGTHS = (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4)


class ScoredPieces:
    """Encodes free text between literal tokens."""

    def __init__(self, gguf: Gguf, vocabulary: Mapping[str, int], places: Mapping[str, int]) -> None:
        """vocabulary: the tokens that text may become (no control or byte tokens); places: all tokens.

        Raises BadModelFile: scores or byte tokens are missing.
        """
        self._ids = vocabulary
        scores = gguf.numbers("tokenizer.ggml.scores", len(gguf.strings("tokenizer.ggml.tokens")))
        # Negated, since the heap gives the smallest first.
        self._costs: list[float] = (-scores).tolist()
        self._bytes = _byte_ids(gguf, places)
        self._prefix = " " if gguf.flag("tokenizer.ggml.add_space_prefix", True) else ""
        self._borders = _borders(vocabulary)
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a free piece of text. Bytes that are not UTF-8 come as surrogate escapes."""
        if after_special:
            text = self._prefix + text
        text = text.replace(" ", SPACE)
        ids: list[int] = []
        # A wrong byte may take a space sign into its symbol, so such text is not cut.
        for piece in [text] if _has_wrong_bytes(text) else self._borders.split(text):
            known = self._known.get(piece)
            if known is None:
                known = self._merge(_symbols(piece))
                if len(piece) <= _REMEMBERED_CHARS:
                    if len(self._known) >= _REMEMBERED_PIECES:
                        self._known.clear()
                    self._known[piece] = known
            ids += known
        return ids

    def whole(self, data: bytes) -> str:
        """Text from bytes that are not UTF-8: wrong bytes travel as surrogate escapes and become byte tokens."""
        return data.decode("utf-8", "surrogateescape")

    def _merge(self, symbols: list[str]) -> list[int]:
        """Join pairs by score. `symbols` is used up."""
        ids, costs = self._ids, self._costs
        count = len(symbols)
        before = list(range(-1, count - 1))
        after = list(range(1, count + 1))
        heap: list[tuple[float, int, int, str]] = []
        for left in range(count - 1):
            text = symbols[left] + symbols[left + 1]
            id = ids.get(text)
            if id is not None:
                heap.append((costs[id], left, left + 1, text))
        heapq.heapify(heap)
        while heap:
            _, left, right, text = heapq.heappop(heap)
            # An entry is stale when either side has been joined with another since.
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != len(text):
                continue
            symbols[left], symbols[right] = text, ""
            following = after[left] = after[right]
            if following < count:
                before[following] = left
                joined = text + symbols[following]
                id = ids.get(joined)
                if id is not None:
                    heapq.heappush(heap, (costs[id], left, following, joined))
            preceding = before[left]
            if preceding >= 0:
                joined = symbols[preceding] + text
                id = ids.get(joined)
                if id is not None:
                    heapq.heappush(heap, (costs[id], preceding, left, joined))
        found: list[int] = []
        for symbol in symbols:
            if symbol:
                id = ids.get(symbol)
                if id is not None:
                    found.append(id)
                else:
                    found += [self._bytes[byte] for byte in symbol.encode("utf-8", "surrogateescape")]
        return found


_WRONG_BYTE = re.compile("[\udc80-\udcff]")


def _has_wrong_bytes(text: str) -> bool:
    return not text.isascii() and _WRONG_BYTE.search(text) is not None


def _symbols(text: str) -> list[str]:
    """What merging starts from: characters. Around wrong bytes, as in llama.cpp, as many bytes as the first one
    announces."""
    if not _has_wrong_bytes(text):
        return list(text)
    data = text.encode("utf-8", "surrogateescape")
    symbols: list[str] = []
    at = 0
    while at < len(data):
        end = at + _LENGTHS[data[at] >> 4]
        symbols.append(data[at:end].decode("utf-8", "surrogateescape"))
        at = end
    return symbols


def _borders(vocabulary: Mapping[str, int]) -> re.Pattern[str]:
    """Where text may be cut: before a space sign, unless some token has the same two characters inside."""
    inside: set[str] = set(re.findall(f"([^{SPACE}\0]){SPACE}", "\0".join(vocabulary)))
    crossing = "".join(re.escape(c) for c in sorted(inside))
    return re.compile(f"(?<=[^{SPACE}{crossing}])(?={SPACE})")


def _byte_ids(gguf: Gguf, places: Mapping[str, int]) -> list[int]:
    """The token of every byte: `<0x0A>`, else the byte's own character, else the unknown token."""
    unknown = gguf.integer("tokenizer.ggml.unknown_token_id", -1)
    ids = [places.get(f"<0x{byte:02X}>", places.get(chr(byte), unknown)) for byte in range(256)]
    if min(ids) < 0:
        raise gguf.bad(f"has no token for byte 0x{ids.index(-1):02X} and no unknown token")
    return ids
