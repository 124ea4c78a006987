"""What a GGUF file is made of: metadata values, tensor types, rows of the tensor table, and the one error.

Plain data for `gguf.py`, which reads files, and for those who read what it found. Knows no architecture.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_U64 = struct.Struct("<Q")


class BadModelFile(Exception):
    """A model file is damaged, hostile or of a kind that does not run. The message names the file, what was
    wrong and what was expected."""

    def __init__(self, path: Path | str, wrong: str) -> None:
        super().__init__(f"{path}: {wrong}")
        self.path = Path(path)


@dataclass(frozen=True, slots=True)
class TensorType:
    """A GGML tensor type: `block` weights are stored in `bytes` bytes."""

    id: int
    name: str
    block: int
    bytes: int


TENSOR_TYPES: dict[int, TensorType] = {
    id: TensorType(id, name, block, size)
    for id, name, block, size in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
    )
}
"""Every type whose size is known, so that a file with a type that does not run is refused by its name."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A row of the tensor table. `dims` is in GGUF order (inputs first); `start` counts from the file's begin."""

    name: str
    dims: tuple[int, ...]
    type: TensorType
    start: int
    bytes: int

    @property
    def count(self) -> int:
        """Number of weights."""
        total = 1
        for dim in self.dims:
            total *= dim
        return total


class Strings:
    """An array of strings left in the mapping: only the places are kept."""

    def __init__(self, path: Path, key: str, buffer: mmap.mmap, starts: array[int], end: int) -> None:
        self._path, self._key, self._buffer, self._starts, self._end = path, key, buffer, starts, end

    def __len__(self) -> int:
        return len(self._starts)

    def raw(self, index: int) -> bytes:
        """The bytes of one string."""
        start = self._starts[index]
        return self._buffer[start : start + _U64.unpack_from(self._buffer, start - 8)[0]]

    def all_raw(self) -> list[bytes]:
        """The bytes of all strings, in order."""
        starts = self._starts
        if not starts:
            return []
        low = starts[0]
        blob = self._buffer[low : self._end]
        # A string ends where the length field of the next one begins.
        ends = [start - 8 - low for start in starts[1:]]
        ends.append(self._end - low)
        return [blob[start - low : end] for start, end in zip(starts, ends, strict=True)]

    def all(self) -> list[str]:
        """All strings, in order. Raises BadModelFile when one is not UTF-8."""
        try:
            # Usually no string holds a zero byte, so zeros can part them and one call decodes a whole vocabulary.
            texts = self._parted().decode().split("\0") if self._starts else []
            return texts if len(texts) == len(self) else [item.decode() for item in self.all_raw()]
        except UnicodeDecodeError:
            index = next(i for i, item in enumerate(self.all_raw()) if not _is_utf8(item))
            raise BadModelFile(self._path, f"string {index} of {self._key} is not UTF-8") from None

    def _parted(self) -> bytes:
        """The strings one after the other, a zero byte where the length field of the next one stood."""
        low = self._starts[0]
        blob = np.frombuffer(self._buffer[low : self._end], np.uint8).copy()
        fields = np.frombuffer(self._starts, np.uint64)[1:].astype(np.int64) - 8 - low
        keep = np.ones(len(blob), bool)
        for byte in range(1, 8):
            keep[fields + byte] = False
        blob[fields] = 0
        return blob[keep].tobytes()


Value = int | float | bool | str | Strings | NDArray[Any]


def describe(value: Value | None) -> str:
    """A value in an error message: short, whatever it is."""
    match value:
        case None:
            return "missing"
        case Strings():
            return f"an array of {len(value)} strings"
        case np.ndarray():
            return f"an array of {len(value)} numbers"
        case _:
            shown = repr(value)
            return shown if len(shown) <= 60 else shown[:57] + "..."


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
