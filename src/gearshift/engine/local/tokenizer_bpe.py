"""Byte-level BPE as GGUF files carry it: vocabulary and merges, and the name of a splitting pattern.

The patterns are not in the files, only their names, so this module lists those that it knows; each gives the ids
that llama.cpp gives. Merging is the `tokenizers` library's. Literal tokens have been cut out before.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from gearshift.engine.local.gguf import Gguf

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + _WORDS + r"\p{N}{1,3}" + _REST
_QWEN2 = _CONTRACTIONS + _WORDS + r"\p{N}" + _REST

_PATTERNS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("default",): (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    ("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4"): (_GPT2,),
    ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"): (r"\p{N}", _GPT2),
    ("llama-bpe", "llama3", "llama-v3", "falcon3", "dbrx", "smaug-bpe"): (_LLAMA3,),
    ("qwen2", "deepseek-r1-qwen", "stablelm2"): (_QWEN2,),
}
PATTERNS: dict[str, tuple[str, ...]] = {name: regexes for names, regexes in _PATTERNS.items() for name in names}
"""`tokenizer.ggml.pre` -> the patterns by which text is split, one after the other."""
LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3", "falcon3")
"""Those that take a whole word that is in the vocabulary without merging, and add BOS unless told otherwise."""


def byte_letters() -> list[str]:
    """The letter that stands for each byte: itself when it prints, else one from U+0100 on."""
    printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [""] * 256
    hidden = 0
    for byte in range(256):
        if byte in printing:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(256 + hidden)
            hidden += 1
    return letters


_BYTES = {ord(letter): byte for byte, letter in enumerate(byte_letters())}


def letters_to_bytes(token: str) -> bytes:
    """The bytes that a token of letters stands for; what is no letter stands for itself in UTF-8."""
    try:
        return token.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return b"".join(bytes([_BYTES[ord(c)]]) if ord(c) in _BYTES else c.encode() for c in token)


class BytePairs:
    """Encodes free text between literal tokens."""

    def __init__(self, gguf: Gguf, vocabulary: Mapping[str, int]) -> None:
        """vocabulary: the tokens that text may become (no control tokens).

        Raises BadModelFile: the pattern is unknown, or merges and vocabulary do not fit together.
        """
        name = gguf.text("tokenizer.ggml.pre", "default")
        if name not in PATTERNS:
            raise gguf.bad(f"tokenizer.ggml.pre is {name!r}; these run: {', '.join(sorted(PATTERNS))}")
        merges = [_pair(merge) for merge in gguf.strings("tokenizer.ggml.merges").all()]
        try:
            model = models.BPE(dict(vocabulary), merges, ignore_merges=name in LLAMA3_NAMES)
        except Exception as error:
            # The library raises plain Exception for merges of tokens that do not exist.
            raise gguf.bad(f"tokenizer.ggml.merges does not fit the vocabulary: {error}") from None
        self._tokenizer = Tokenizer(model)
        splits = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in PATTERNS[name]]
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        # The library's stubs leave this attribute without a type.
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, letters])  # pyright: ignore[reportAttributeAccessIssue]

    def encode(self, text: str, after_special: bool) -> list[int]:
        """Ids of a free piece of text. What precedes it makes no difference here."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def whole(self, data: bytes) -> str:
        """Text from bytes that are not UTF-8: each wrong byte becomes U+FFFD, as in llama.cpp."""
        text = data.decode("utf-8", "surrogateescape")
        return "".join("\N{REPLACEMENT CHARACTER}" if "\udc80" <= c <= "\udcff" else c for c in text)


def _pair(merge: str) -> tuple[str, str]:
    # The first letter may itself be a space in odd vocabularies, so look from the second on.
    cut = merge.find(" ", 1)
    return merge[:cut], merge[cut + 1 :]
