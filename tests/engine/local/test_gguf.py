"""The reader against files that another program wrote, and against files that nobody should have written."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.engine.local.gguf import BadModelFile, Gguf, Strings
from gearshift.engine.local.gguf_values import TENSOR_TYPES
from gearshift.engine.local.shape import shape_of
from tests.engine.local.small_files import write_model


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("gguf") / "sound.gguf", "gemma3")


def test_agrees_with_the_independent_reader(sound: Path) -> None:
    reference = GGUFReader(sound)
    with Gguf.open(sound) as gguf:
        assert list(gguf.tensors) == [tensor.name for tensor in reference.tensors]
        for theirs in reference.tensors:
            ours = gguf.tensors[theirs.name]
            assert ours.dims == tuple(int(dim) for dim in theirs.shape)
            assert ours.type.name == theirs.tensor_type.name
            assert (ours.start, ours.bytes) == (theirs.data_offset, theirs.n_bytes)
            assert gguf.data(ours).tobytes() == theirs.data.tobytes()
        keys = [key for key in reference.fields if not key.startswith("GGUF.")]
        assert list(gguf.metadata) == keys
        for key in keys:
            field, value = reference.fields[key], gguf.metadata[key]
            if isinstance(value, Strings):
                assert value.all() == field.contents()
                assert [value.raw(i).decode() for i in range(len(value))] == field.contents()
            elif isinstance(value, np.ndarray):
                assert value.tolist() == field.contents()
            else:
                assert value == field.contents()


def test_every_tensor_type_has_the_size_that_the_format_gives_it() -> None:
    from gguf import GGML_QUANT_SIZES

    for kind, (block, size) in GGML_QUANT_SIZES.items():
        if kind.value in TENSOR_TYPES:
            ours = TENSOR_TYPES[kind.value]
            assert (ours.name, ours.block, ours.bytes) == (kind.name, block, size)


def test_scalars_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "scalars.gguf"
    writer = GGUFWriter(path, "llama")
    values: list[tuple[GGUFValueType, int | float | bool | str]] = [
        (GGUFValueType.UINT8, 255),
        (GGUFValueType.INT8, -128),
        (GGUFValueType.UINT16, 65535),
        (GGUFValueType.INT16, -32768),
        (GGUFValueType.UINT32, 2**32 - 1),
        (GGUFValueType.INT32, -(2**31)),
        (GGUFValueType.UINT64, 2**64 - 1),
        (GGUFValueType.INT64, -(2**63)),
        (GGUFValueType.FLOAT32, 0.5),
        (GGUFValueType.FLOAT64, 0.1),
        (GGUFValueType.BOOL, True),
        (GGUFValueType.STRING, "快 🚀"),
    ]
    for kind, value in values:
        writer.add_key_value(f"x.{kind.name}", value, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with Gguf.open(path) as gguf:
        for kind, value in values:
            read = gguf.metadata[f"x.{kind.name}"]
            assert read == value
            assert type(read) is type(value)


def test_typed_access_names_what_is_wrong(sound: Path) -> None:
    with Gguf.open(sound) as gguf:
        assert gguf.integer("gemma3.block_count") == 2
        assert gguf.integer("no.such", 7) == 7
        with pytest.raises(BadModelFile, match=r"no\.such is missing; expected a string"):
            gguf.text("no.such")
        with pytest.raises(BadModelFile, match=r"tokenizer\.ggml\.add_bos_token is False; expected an integer"):
            gguf.integer("tokenizer.ggml.add_bos_token")
        with pytest.raises(BadModelFile, match="320 entries; expected 5"):
            gguf.numbers("tokenizer.ggml.token_type", 5)


def head(version: int = 3, tensors: int = 0, entries: int = 0, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: bytes, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


HUGE = 2**63
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "not a model": (b"PK\x03\x04" + bytes(60), "does not begin with GGUF"),
    "version 1": (head(version=1), "version 1; expected little-endian version 2 or 3"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian version 3"),
    "tensor count": (head(tensors=HUGE), f"says it has {HUGE} tensors"),
    "only the head": (head(tensors=100) + bytes(1000), "says it has 100 tensors, but has 1024 bytes: it is cut short"),
    "entry count": (head(entries=2**32), f"says it has {2**32} metadata keys"),
    "key length": (head(entries=1) + struct.pack("<Q", HUGE) + bytes(64), "expected at most 1024"),
    "key not UTF-8": (head(entries=1) + entry(b"\xff\xfe", 4, bytes(4)), "not UTF-8"),
    "key twice": (head(entries=2) + entry(b"a", 4, bytes(4)) * 2, "a occurs twice"),
    "value type": (head(entries=1) + entry(b"a", 77, bytes(8)), "unknown value type 77"),
    "boolean": (head(entries=1) + entry(b"a", 7, b"\x02") + bytes(8), "boolean 2"),
    "string length": (head(entries=1) + entry(b"a", 8, struct.pack("<Q", HUGE)), f"{HUGE} bytes long"),
    "string not UTF-8": (head(entries=1) + entry(b"a", 8, text(b"\xc3\x28")), "not UTF-8"),
    "nested array": (head(entries=1) + entry(b"a", 9, struct.pack("<IQ", 9, 1)) + bytes(32), "array of arrays"),
    "array type": (head(entries=1) + entry(b"a", 9, struct.pack("<IQ", 99, 1)) + bytes(32), "unknown type 99"),
    "array length": (head(entries=1) + entry(b"a", 9, struct.pack("<IQ", 4, HUGE)), "cut short or damaged"),
    "string count": (head(entries=1) + entry(b"a", 9, struct.pack("<IQ", 8, HUGE)), "expected at most 4194304"),
    "string array": (head(entries=1) + entry(b"a", 9, struct.pack("<IQQ", 8, 1, HUGE)), "past the end"),
    "alignment": (head(entries=1) + entry(b"general.alignment", 4, struct.pack("<I", 24)), "a power of two"),
    "alignment zero": (head(entries=1) + entry(b"general.alignment", 4, bytes(4)), "a power of two"),
    "alignment text": (head(entries=1) + entry(b"general.alignment", 8, text(b"32")), "a power of two"),
    "split": (head(entries=1) + entry(b"split.count", 2, struct.pack("<H", 3)), "one part of a split model"),
    "tensor name": (head(tensors=1) + tensor(b"\xff", (1,)) + bytes(64), "not UTF-8"),
    "tensor twice": (
        head(tensors=2) + tensor(b"a", (8,)) + tensor(b"a", (8,), 0, 32) + bytes(99),
        "a occurs twice",
    ),
    "rank zero": (head(tensors=1) + tensor(b"a", ()) + bytes(64), "0 dimensions; expected 1 to 4"),
    "rank": (head(tensors=1) + tensor(b"a", (1,) * 5) + bytes(64), "5 dimensions; expected 1 to 4"),
    "dimension zero": (head(tensors=1) + tensor(b"a", (0, 4)) + bytes(64), r"dimensions \[0, 4\]"),
    "dimensions": (head(tensors=1) + tensor(b"a", (2**63, 2**63, 4)) + bytes(64), "expected 1 to"),
    "tensor type": (head(tensors=1) + tensor(b"a", (32,), kind=1000) + bytes(64), "unknown type number 1000"),
    "row": (head(tensors=1) + tensor(b"a", (33,), kind=8) + bytes(64), "Q8_0 needs a multiple of 32"),
    "offset": (head(tensors=1) + tensor(b"a", (4,), offset=4) + bytes(99), "offset 4; expected a multiple of 32"),
    "far offset": (head(tensors=1) + tensor(b"a", (4,), offset=2**62) + bytes(64), "cut short"),
    "cut tensor": (head(tensors=1) + tensor(b"a", (64,)) + bytes(64), "cut short"),
    "overlap": (head(tensors=2) + tensor(b"a", (16,)) + tensor(b"b", (8,), offset=32) + bytes(99), "a and b overlap"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    content, reason = HOSTILE[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    with pytest.raises(BadModelFile, match=reason) as caught:
        Gguf.open(path)
    assert str(path) in str(caught.value)


def test_every_string_is_checked_when_read(tmp_path: Path) -> None:
    path = tmp_path / "strings.gguf"
    array = struct.pack("<IQ", 8, 2) + text(b"fine") + text(b"\xff")
    path.write_bytes(head(entries=1) + entry(b"tokens", 9, array))
    with Gguf.open(path) as gguf:
        assert gguf.strings("tokens").all_raw() == [b"fine", b"\xff"]
        with pytest.raises(BadModelFile, match="string 1 of tokens is not UTF-8"):
            gguf.strings("tokens").all()


def open_or_refuse(path: Path) -> bool:
    """Whether the file opens as a model; anything but a sound answer or BadModelFile fails the test."""
    try:
        with Gguf.open(path) as gguf:
            shape_of(gguf)
            for value in gguf.metadata.values():
                if isinstance(value, Strings):
                    value.all()
            for tensor in gguf.tensors.values():
                assert int(gguf.data(tensor)[-1]) >= 0
    except BadModelFile as error:
        assert str(path) in str(error)
        return False
    return True


def head_bytes(path: Path) -> int:
    with Gguf.open(path) as gguf:
        return min(tensor.start for tensor in gguf.tensors.values())


def check_truncations(sound: Path, path: Path, lengths: Iterable[int]) -> None:
    content = sound.read_bytes()
    for length in lengths:
        path.write_bytes(content[:length])
        assert not open_or_refuse(path), length


def test_truncated_files_are_refused(sound: Path, tmp_path: Path) -> None:
    check_truncations(sound, tmp_path / "cut.gguf", range(0, sound.stat().st_size - 64, 499))


@pytest.mark.long
def test_files_truncated_at_any_byte_of_the_head_are_refused(sound: Path, tmp_path: Path) -> None:
    check_truncations(sound, tmp_path / "cut.gguf", range(head_bytes(sound)))


def check_mutation(sound: Path, path: Path, edits: list[tuple[float, int]], wide: bytes, at: float) -> None:
    content = bytearray(sound.read_bytes())
    # Only the head is structure; a changed weight is just another weight.
    begin = head_bytes(sound)
    for place, value in edits:
        content[int(place * (begin - 1))] = value
    place = int(at * (begin - 9))
    content[place : place + len(wide)] = wide
    path.write_bytes(bytes(content))
    open_or_refuse(path)


EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=6)
WIDE = st.sampled_from([b"", bytes(8), b"\xff" * 8, b"\0" * 7 + b"\x80", b"\0\0\0\0\1\0\0\0", b"\xff" * 4])


@settings(max_examples=150, deadline=None)
@given(edits=EDITS, wide=WIDE, at=st.floats(0, 1))
def test_damaged_bytes_never_crash_the_reader(
    sound: Path, tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[float, int]], wide: bytes, at: float
) -> None:
    check_mutation(sound, tmp_path_factory.getbasetemp() / "damaged.gguf", edits, wide, at)


@pytest.mark.long
@settings(max_examples=5000, deadline=None)
@given(edits=EDITS, wide=WIDE, at=st.floats(0, 1))
def test_thousands_of_damaged_files_never_crash_the_reader(
    sound: Path, tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[float, int]], wide: bytes, at: float
) -> None:
    check_mutation(sound, tmp_path_factory.getbasetemp() / "damaged-long.gguf", edits, wide, at)
