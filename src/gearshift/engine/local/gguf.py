"""Reads GGUF files: metadata, tensor table, tensor bytes; memory-mapped, and nothing in the file is trusted.

Every count, length and offset is checked against the file before it is used, and large arrays are kept as places
in the mapping until somebody asks for them, so opening costs milliseconds. What the numbers mean for a model is
`shape.py`'s subject; this module knows no architecture. A file that another process truncates while it is mapped
cannot be guarded against: replace model files by renaming a new one into their place.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from gearshift.engine.local.gguf_values import TENSOR_TYPES, BadModelFile, Strings, Tensor, TensorType, Value, describe

__all__ = ["BadModelFile", "Gguf", "Strings", "Tensor", "TensorType"]

_T = TypeVar("_T", str, int, float, bool)

MAX_ENTRIES = 1 << 16
"""Most metadata keys, and most tensors, of a file: far above any real model, low enough to read quickly."""
MAX_ARRAY = 1 << 22
"""Most strings in all arrays of a file together (a vocabulary holds up to some 300,000)."""
MAX_STRING = 1 << 24
"""Longest single string in bytes; chat templates are the longest real ones."""
MAX_NAME = 1 << 10
"""Longest key or tensor name in bytes."""
MAX_WEIGHTS = 1 << 42
"""Most weights in one tensor; keeps every size below well within 64 bits."""


_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SCALARS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: _U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_DTYPES = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}


class Gguf:
    """An open GGUF file. Use it as a context manager, or `close` it; arrays and tensor bytes taken from it keep
    the mapping alive.

    Attributes:
        metadata: key -> value; arrays as `Strings` or numpy arrays.
        tensors: name -> place, in the file's order.
    """

    def __init__(self, path: Path, buffer: mmap.mmap, metadata: Mapping[str, Value], tensors: Mapping[str, Tensor]):
        self.path = path
        self.metadata = metadata
        self.tensors = tensors
        self._buffer = buffer

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Map and read a file.

        Raises:
            BadModelFile: it is not a sound GGUF file.
            OSError: it cannot be read at all.
        """
        path = Path(path)
        with path.open("rb") as file:
            try:
                buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise BadModelFile(path, "the file is empty; expected a GGUF file") from None
        try:
            metadata, tensors = _Parser(path, buffer).parse()
        except BaseException:
            _close(buffer)
            raise
        return cls(path, buffer, metadata, tensors)

    def close(self) -> None:
        """Drop the mapping, unless arrays taken from it are still in use (then it goes with the last of them)."""
        _close(self._buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def data(self, tensor: Tensor) -> NDArray[np.uint8]:
        """The bytes of a tensor as they lie in the mapping."""
        return np.frombuffer(self._buffer, np.uint8, tensor.bytes, tensor.start)

    def bad(self, wrong: str) -> BadModelFile:
        """An error about this file, to be raised by the caller."""
        return BadModelFile(self.path, wrong)

    def text(self, key: str, default: str | None = None) -> str:
        """A string value. Raises BadModelFile when it is no string, or missing and without a default."""
        return self._typed(key, str, "a string", default)

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer value; errors as for `text`."""
        return self._typed(key, int, "an integer", default)

    def number(self, key: str, default: float | None = None) -> float:
        """A floating-point value, always finite; errors as for `text`."""
        value = self._typed(key, float, "a number", default)
        if not np.isfinite(value):
            raise self.bad(f"{key} is {value}; expected a finite number")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        """A boolean value; errors as for `text`."""
        return self._typed(key, bool, "a boolean", default)

    def strings(self, key: str) -> Strings:
        """An array of strings. Raises BadModelFile when it is missing or something else."""
        value = self.metadata.get(key)
        if not isinstance(value, Strings):
            raise self.bad(f"{key} is {describe(value)}; expected an array of strings")
        return value

    def numbers(self, key: str, length: int) -> NDArray[Any]:
        """An array of `length` numbers. Raises BadModelFile when it is missing or something else."""
        value = self.metadata.get(key)
        if not isinstance(value, np.ndarray):
            raise self.bad(f"{key} is {describe(value)}; expected an array of {length} numbers")
        if len(value) != length:
            raise self.bad(f"{key} has {len(value)} entries; expected {length}")
        return value

    def _typed(self, key: str, wanted: type[_T], words: str, default: _T | None) -> _T:
        value = self.metadata.get(key)
        if value is None:
            if default is not None:
                return default
            raise self.bad(f"metadata key {key} is missing; expected {words}")
        # bool is an int to Python, but 1 and true are different things in a file.
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise self.bad(f"{key} is {describe(value)}; expected {words}")
        return value


class _Parser:
    """One pass over the head of a file. `_at` is the place of the next unread byte."""

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self._path = path
        self._buffer = buffer
        self._size = len(buffer)
        self._at = 0
        self._strings_left = MAX_ARRAY

    def parse(self) -> tuple[dict[str, Value], dict[str, Tensor]]:
        if self._take(4, "the magic") != b"GGUF":
            raise self._bad("does not begin with GGUF; expected a GGUF file")
        version = self._u32("the version")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            found = f"big-endian version {swapped}" if swapped in (2, 3) else f"version {version}"
            raise self._bad(f"is GGUF {found}; expected little-endian version 2 or 3")
        tensor_count = self._count("tensors", least=24)
        entry_count = self._count("metadata keys", least=13)
        metadata: dict[str, Value] = {}
        for _ in range(entry_count):
            key = self._text("a metadata key", MAX_NAME)
            if key in metadata:
                raise self._bad(f"metadata key {key} occurs twice")
            metadata[key] = self._value(key)
        if metadata.get("split.count", 1) not in (0, 1):
            raise self._bad("is one part of a split model; join the parts first (gguf-split --merge)")
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 8 <= alignment <= 1 << 16 or alignment & (alignment - 1):
            raise self._bad(f"general.alignment is {describe(alignment)}; expected a power of two from 8 to 65536")
        return metadata, self._tensors(tensor_count, alignment)

    def _tensors(self, count: int, alignment: int) -> dict[str, Tensor]:
        rows = [self._tensor_row() for _ in range(count)]
        begin = -(-self._at // alignment) * alignment
        tensors: dict[str, Tensor] = {}
        for name, dims, type_, offset in rows:
            if name in tensors:
                raise self._bad(f"tensor {name} occurs twice")
            tensor = Tensor(name, dims, type_, begin + offset, 0)
            size = tensor.count // type_.block * type_.bytes
            if offset % alignment:
                raise self._bad(f"tensor {name} lies at offset {offset}; expected a multiple of {alignment}")
            if tensor.start + size > self._size:
                raise self._bad(
                    f"tensor {name} ends at byte {tensor.start + size}, but the file has {self._size}: it is cut short"
                )
            tensors[name] = Tensor(name, dims, type_, tensor.start, size)
        ordered = sorted(tensors.values(), key=lambda tensor: tensor.start)
        for i in range(1, len(ordered)):
            if ordered[i - 1].start + ordered[i - 1].bytes > ordered[i].start:
                raise self._bad(f"tensors {ordered[i - 1].name} and {ordered[i].name} overlap")
        return tensors

    def _tensor_row(self) -> tuple[str, tuple[int, ...], TensorType, int]:
        name = self._text("a tensor name", MAX_NAME)
        rank = self._u32(f"the rank of {name}")
        if not 1 <= rank <= 4:
            raise self._bad(f"tensor {name} has {rank} dimensions; expected 1 to 4")
        dims = tuple(self._u64(f"the dimensions of {name}") for _ in range(rank))
        total = 1
        for dim in dims:
            total *= dim
        if not 1 <= total <= MAX_WEIGHTS:
            raise self._bad(f"tensor {name} has dimensions {list(dims)}; expected 1 to {MAX_WEIGHTS} weights")
        number = self._u32(f"the type of {name}")
        type_ = TENSOR_TYPES.get(number)
        if type_ is None:
            raise self._bad(f"tensor {name} has the unknown type number {number}")
        if dims[0] % type_.block:
            raise self._bad(f"tensor {name} has rows of {dims[0]}; {type_.name} needs a multiple of {type_.block}")
        return name, dims, type_, self._u64(f"the offset of {name}")

    def _value(self, key: str) -> Value:
        kind = self._u32(f"the type of {key}")
        if kind == _STRING:
            return self._text(key, MAX_STRING)
        if kind == _BOOL:
            byte = self._take(1, key)[0]
            if byte > 1:
                raise self._bad(f"{key} is the boolean {byte}; expected 0 or 1")
            return bool(byte)
        if kind == _ARRAY:
            return self._array(key)
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise self._bad(f"{key} has the unknown value type {kind}")
        value: int | float = scalar.unpack(self._take(scalar.size, key))[0]
        return value

    def _array(self, key: str) -> Value:
        kind = self._u32(f"the element type of {key}")
        count = self._u64(f"the length of {key}")
        if kind == _STRING:
            return self._string_array(key, count)
        dtype = _DTYPES.get(kind)
        if dtype is None:
            named = "arrays" if kind == _ARRAY else f"the unknown type {kind}"
            raise self._bad(f"{key} is an array of {named}; expected numbers or strings")
        size = count * np.dtype(dtype).itemsize
        self._need(size, key)
        values = np.frombuffer(self._buffer, dtype, count, self._at)
        self._at += size
        return values

    def _string_array(self, key: str, count: int) -> Strings:
        if count > self._strings_left:
            raise self._bad(f"{key} has {count} strings; expected at most {MAX_ARRAY} in a file")
        self._strings_left -= count
        self._need(count * 8, key)
        # The hot loop of opening a file: one step per token of the vocabulary.
        starts: array[int] = array("Q")
        append, unpack, buffer = starts.append, _U64.unpack_from, self._buffer
        at, last = self._at, self._size - 8
        for _ in range(count):
            if at > last:
                raise self._bad(f"{key} runs past the end of the file: it is cut short or damaged")
            length: int = unpack(buffer, at)[0]
            at += 8
            append(at)
            at += length
        if at > self._size:
            raise self._bad(f"{key} runs past the end of the file: it is cut short or damaged")
        self._at = at
        return Strings(self._path, key, buffer, starts, at)

    def _bad(self, wrong: str) -> BadModelFile:
        return BadModelFile(self._path, wrong)

    def _need(self, size: int, what: str) -> None:
        if size > self._size - self._at:
            raise self._bad(
                f"{what} needs {size} bytes at byte {self._at} of {self._size}: the file is cut short or damaged"
            )

    def _take(self, size: int, what: str) -> bytes:
        self._need(size, what)
        taken = self._buffer[self._at : self._at + size]
        self._at += size
        return taken

    def _u32(self, what: str) -> int:
        return _U32.unpack(self._take(4, what))[0]

    def _u64(self, what: str) -> int:
        return _U64.unpack(self._take(8, what))[0]

    def _count(self, what: str, least: int) -> int:
        """A number of entries of at least `least` bytes each."""
        count = self._u64(f"the number of {what}")
        if count > MAX_ENTRIES:
            raise self._bad(f"says it has {count} {what}; expected at most {MAX_ENTRIES}")
        if count * least > self._size:
            raise self._bad(f"says it has {count} {what}, but has {self._size} bytes: it is cut short or damaged")
        return count

    def _text(self, what: str, most: int) -> str:
        length = self._u64(f"the length of {what}")
        if length > most:
            raise self._bad(f"{what} is {length} bytes long; expected at most {most}")
        raw = self._take(length, what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._bad(f"{what} is not UTF-8: {raw[:40]!r}") from None


def _close(buffer: mmap.mmap) -> None:
    try:
        buffer.close()
    except BufferError:
        return  # numpy arrays still look at it; the mapping goes with the last of them
