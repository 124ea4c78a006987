"""Token ids are llama.cpp's (data/token_ids.json.xz, made by token_corpus.py), for any text and any bytes."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from gearshift.engine.local.download import source_path
from gearshift.engine.local.gguf import BadModelFile, Gguf
from gearshift.engine.local.tokenizer import Tokenizer
from gearshift.engine.local.tokenizer_bpe import PATTERNS
from tests.engine.local.small_files import add_byte_vocabulary, write_model
from tests.engine.local.token_corpus import FIXTURE, PRE_NAMES, copy_vocabulary, texts


def model_file(name: str) -> Path:
    path = source_path(name)
    if not path.exists():
        pytest.skip(f"{path} is missing; run `gearshift models add {name}`")
    return path


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(lzma.decompress(FIXTURE.read_bytes()))
    assert stored["texts"] == [text.hex() for text in texts()], "the corpus changed: run token_corpus.py again"
    return stored["ids"]


def check(path: Path, expected: list[list[list[int]]]) -> Tokenizer:
    with Gguf.open(path) as gguf:
        tokenizer = Tokenizer(gguf)
    for text, (plain, special) in zip(texts(), expected, strict=True):
        assert tokenizer.encode(text) == plain, text
        assert tokenizer.encode(text, special=True) == special, text
        if _is_utf8(text):
            assert tokenizer.encode(text.decode()) == plain, text
    return tokenizer


def _is_utf8(data: bytes) -> bool:
    return data.decode("utf-8", "replace").encode() == data


def test_smollm2(expected: dict[str, Any]) -> None:
    tokenizer = check(model_file("smollm2-135m-instruct"), expected["smollm2"])
    for text in filter(_is_utf8, texts()):
        assert tokenizer.decode(tokenizer.encode(text)) == text.decode()


def test_gemma(expected: dict[str, Any]) -> None:
    tokenizer = check(model_file("gemma-3-270m"), expected["gemma"])
    for text in filter(_is_utf8, texts()):
        # The vocabulary writes spaces as U+2581, so such a character in a text comes back as a space.
        assert tokenizer.decode(tokenizer.encode(text)) == text.decode().replace("\u2581", " ")


def test_a_sentencepiece_vocabulary_with_space_prefix(expected: dict[str, Any], tmp_path: Path) -> None:
    with Gguf.open(model_file("gemma-3-270m")) as gguf:
        path = copy_vocabulary(gguf, tmp_path / "space.gguf", tokens=20_000, space_prefix=True)
    check(path, expected["space prefix"])


@pytest.mark.parametrize("pre", ["default", "gpt-2", "llama-bpe", "qwen2"])
def test_splitting_patterns(pre: str, expected: dict[str, Any], tmp_path: Path) -> None:
    check_pattern(pre, expected, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("pre", PRE_NAMES)
def test_every_splitting_pattern(pre: str, expected: dict[str, Any], tmp_path: Path) -> None:
    check_pattern(pre, expected, tmp_path)


def check_pattern(pre: str, expected: dict[str, Any], folder: Path) -> None:
    with Gguf.open(model_file("smollm2-135m-instruct")) as gguf:
        path = copy_vocabulary(gguf, folder / "copy.gguf", pre)
    check(path, expected[f"pre {pre}"])


def test_every_known_pattern_was_compared() -> None:
    assert set(PRE_NAMES) == set(PATTERNS)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    with Gguf.open(write_model(tmp_path_factory.mktemp("small") / "m.gguf")) as gguf:
        return Tokenizer(gguf)


def test_special_tokens_only_when_asked_for(small: Tokenizer) -> None:
    text = "<|im_start|>hello<|im_end|>"
    special = small.encode(text, special=True)
    assert (special[0], special[-1]) == (1, 2)
    plain = small.encode(text)
    assert not {0, 1, 2} & set(plain)
    assert small.decode(plain) == text
    assert small.decode(special) == "hello"


def test_ends_and_named_tokens(small: Tokenizer) -> None:
    assert (small.bos, small.eos, small.adds_bos) == (1, 2, False)
    assert small.ends == {0, 2}
    assert small.is_control(1)
    assert not small.is_control(40)
    assert small.token_text(1) == "<|im_start|>"
    assert small.token_bytes(1) == b""
    assert small.all_bytes == [small.token_bytes(id) for id in range(small.vocab_size)]
    for id in (-1, small.vocab_size):
        with pytest.raises(IndexError):
            small.token_bytes(id)


@given(st.text())
def test_any_text_comes_back(small: Tokenizer, text: str) -> None:
    assert small.decode(small.encode(text)) == text


@given(st.text(st.characters(categories=["Cs", "L", "P"])))
def test_lone_surrogates_become_replacement_characters(small: Tokenizer, text: str) -> None:
    wanted = "".join("\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in text)
    assert small.decode(small.encode(text)) == wanted


@given(st.binary())
def test_any_bytes_are_encoded(small: Tokenizer, data: bytes) -> None:
    ids = small.encode(data, special=True)
    assert all(0 <= id < small.vocab_size for id in ids)
    if _is_utf8(data):
        assert b"".join(small.all_bytes[id] for id in ids) == data


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("tokenizer.ggml.model", "bert", r"'bert'; these run: gpt2 .* llama"),
        ("tokenizer.ggml.pre", "viking", "'viking'; these run: codeshell, command-r"),
        ("tokenizer.ggml.eos_token_id", 320, "eos_token_id is 320, but the vocabulary has 320 tokens"),
        ("tokenizer.ggml.token_type", [1, 2, 3], "token_type has 3 entries; expected 320"),
        ("tokenizer.ggml.token_type", [9] * 320, "not token types"),
        ("tokenizer.ggml.merges", ["zz zz"], "merges does not fit the vocabulary"),
        ("tokenizer.ggml.merges", ["zz"], "merges does not fit the vocabulary"),
    ],
)
def test_damaged_tokenizers_are_refused(key: str, value: int | str | list[int], reason: str, tmp_path: Path) -> None:
    with Gguf.open(_vocabulary(tmp_path / "m.gguf", key, value)) as gguf, pytest.raises(BadModelFile, match=reason):
        Tokenizer(gguf)


def _vocabulary(path: Path, key: str, value: int | str | list[int]) -> Path:
    """A byte-level vocabulary with one entry spoiled."""
    writer = GGUFWriter(path, "llama")
    add_byte_vocabulary(writer)
    entries: Any = writer.kv_data[0]
    del entries[key]
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
