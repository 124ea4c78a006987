"""Text to token ids and token ids to bytes, with the ids that llama.cpp gives for the same file.

This module knows what kinds of tokens there are and where they may come from; the two ways to merge text are in
`tokenizer_bpe.py` and `tokenizer_spm.py`. Text that looks like a control token becomes one only when the caller
says that the text may hold such (`special=True`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.tokenizer_bpe import LLAMA3_NAMES, BytePairs, letters_to_bytes
from gearshift.engine.local.tokenizer_parts import Literals
from gearshift.engine.local.tokenizer_spm import SPACE, ScoredPieces

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Kinds of tokens as GGUF numbers them. Control tokens structure a prompt; user-defined ones are plain text that is
always one token."""

_END_TEXTS = frozenset(
    [
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "<|END_OF_TURN_TOKEN|>",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
        "<|eot|>",
        "<|return|>",
        "<|call|>",
    ]
)
"""Texts of tokens that end an answer, whatever the file says about them."""
_STRUCTURE_TEXTS = _END_TEXTS | frozenset(
    [
        "<|im_start|>",
        "<start_of_turn>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|begin_of_text|>",
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        "<|fim_pad|>",
        "<|repo_name|>",
        "<|file_sep|>",
    ]
)
"""Texts of tokens that are control tokens even where a file marks them otherwise."""
_KEYS = ["bos", "eos", "eot", "eom", "unknown", "padding"]
_TAG = re.compile(r"[<\[]\S+[>\]]")
_BYTE_TEXT = re.compile("<0x([0-9A-F]{2})>")


class _Merging(Protocol):
    def encode(self, text: str, after_special: bool) -> list[int]: ...
    def whole(self, data: bytes) -> str: ...


class Tokenizer:
    """The vocabulary of one model file. Thread-safe once made.

    Attributes:
        vocab_size: number of ids.
        bos, eos: ids of the begin and end tokens, None where the file names none.
        ends: ids of all tokens that end an answer.
        adds_bos: whether the model expects BOS in front of every prompt.
    """

    def __init__(self, gguf: Gguf) -> None:
        """Raises BadModelFile: the tokenizer is damaged, or of a kind that does not run (named, with those that do)."""
        model = gguf.text("tokenizer.ggml.model")
        if model not in ("gpt2", "llama"):
            raise gguf.bad(
                f"tokenizer.ggml.model is {model!r}; these run: gpt2 (byte-level BPE), llama (SentencePiece)"
            )
        self._byte_level = model == "gpt2"
        self._tokens = gguf.strings("tokenizer.ggml.tokens").all()
        self.vocab_size = len(self._tokens)
        # Of tokens with equal texts the last one counts, as in llama.cpp.
        places = dict(zip(self._tokens, range(self.vocab_size), strict=True))
        self._kinds = self._read_kinds(gguf, places)
        named = {key: self._named(gguf, key) for key in _KEYS}
        self.bos, self.eos = named["bos"], named["eos"]
        ends = [named["eos"], named["eot"], named["eom"], *(places.get(text) for text in _END_TEXTS)]
        self.ends = frozenset(id for id in ends if id is not None)
        adds_bos = not self._byte_level or gguf.text("tokenizer.ggml.pre", "default") in LLAMA3_NAMES
        self.adds_bos = gguf.flag("tokenizer.ggml.add_bos_token", adds_bos) and self.bos is not None
        self._control_ids, self._defined_ids = self._of_kinds(CONTROL, UNKNOWN), self._of_kinds(USER_DEFINED)
        self._defined = Literals(self._defined_ids)
        self._all = Literals(self._control_ids | self._defined_ids)
        ordinary = places.copy()
        for text in self._control_ids | self._of_kinds(BYTE):
            ordinary.pop(text, None)
        self._merging: _Merging = (
            BytePairs(gguf, ordinary) if self._byte_level else ScoredPieces(gguf, ordinary, places)
        )

    def encode(self, text: str | bytes, special: bool = False) -> list[int]:
        """Ids of a text, without BOS. Any str and any bytes are encoded: a lone surrogate counts as U+FFFD, bytes
        that are not UTF-8 as llama.cpp takes them.

        special: whether the text's control tokens become such (text of our own, or of a template), instead of
        plain text.
        """
        whole = self._whole(text)
        return self._join((self._all if special else self._defined).split(whole))

    def literals_for(self, template: str) -> tuple[Literals, Literals]:
        """The tokens that structure prompts under a chat template, and those that are literal in plain text.

        Control tokens structure; so do user-defined ones, such as `<tool_call>`, that the template writes itself.
        """
        named = {text: id for text, id in self._defined_ids.items() if text in template and _TAG.fullmatch(text)}
        plain = {text: id for text, id in self._defined_ids.items() if text not in named}
        return Literals(self._control_ids | named), Literals(plain)

    def encode_plain(self, text: str, literals: Literals, after_special: bool) -> list[int]:
        """Ids of a stretch of plain text under `literals_for`; `after_special` says whether it begins the prompt or
        follows a structuring token, which matters to vocabularies that put a space in front."""
        return self._join(literals.split(text), after_special)

    def token_text(self, id: int) -> str:
        """The text of a token as the vocabulary has it; for templates and displays. Raises IndexError."""
        return self._tokens[_checked(id)]

    def token_bytes(self, id: int) -> bytes:
        """The bytes that a token adds to an answer: nothing for control and unused tokens. Raises IndexError."""
        text, kind = self._tokens[_checked(id)], self._kinds[id]
        if kind == NORMAL:
            return letters_to_bytes(text) if self._byte_level else text.replace(SPACE, " ").encode()
        if kind == USER_DEFINED:
            return text.encode()
        if kind == BYTE and (match := _BYTE_TEXT.fullmatch(text)):
            return bytes([int(match[1], 16)])
        return b""

    def is_control(self, id: int) -> bool:
        """Whether a token structures the prompt instead of carrying text. Raises IndexError."""
        return self._kinds[_checked(id)] in (CONTROL, UNKNOWN)

    @cached_property
    def all_bytes(self) -> list[bytes]:
        """`token_bytes` of every id; made at the first use."""
        return [self.token_bytes(id) for id in range(self.vocab_size)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def _whole(self, text: str | bytes) -> str:
        if isinstance(text, bytes):
            try:
                return text.decode()
            except UnicodeDecodeError:
                return self._merging.whole(text)
        return text if text.isascii() else whole_text(text)

    def _join(self, parts: list[str | int], after_special: bool = True) -> list[int]:
        ids: list[int] = []
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
                after_special = True
            else:
                ids += self._merging.encode(part, after_special)
                after_special = False
        return ids

    def _read_kinds(self, gguf: Gguf, places: Mapping[str, int]) -> bytes:
        if "tokenizer.ggml.token_type" not in gguf.metadata:
            kinds = bytearray([NORMAL]) * self.vocab_size
        else:
            numbers = gguf.numbers("tokenizer.ggml.token_type", self.vocab_size)
            if numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers > BYTE)).any():
                raise gguf.bad("tokenizer.ggml.token_type has entries that are not token types from 0 to 6")
            kinds = bytearray(numbers.astype("u1").tobytes())
        for text in _STRUCTURE_TEXTS & places.keys():
            kinds[places[text]] = CONTROL
        return bytes(kinds)

    def _of_kinds(self, *kinds: int) -> dict[str, int]:
        """Text -> id of the tokens of some kinds."""
        found = np.flatnonzero(np.isin(np.frombuffer(self._kinds, np.uint8), kinds)).tolist()
        return {self._tokens[id]: id for id in found}

    def _named(self, gguf: Gguf, key: str) -> int | None:
        name = f"tokenizer.ggml.{key}_token_id"
        if name not in gguf.metadata:
            return None
        id = gguf.integer(name)
        if not 0 <= id < self.vocab_size:
            raise gguf.bad(f"{name} is {id}, but the vocabulary has {self.vocab_size} tokens")
        return id


_SURROGATES = re.compile("[\ud800-\udfff]")


def whole_text(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def _checked(id: int) -> int:
    if id < 0:
        raise IndexError(f"token id {id} is negative")
    return id
