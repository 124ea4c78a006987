"""Reads a GGUF file with the `gguf` package and dequantises its tensors with that package's own routines.

Opening a file that way takes 10 to 20 seconds for a large vocabulary, so the list of tensors and plain metadata can be
kept as JSON beside the other cached results of the tests. The numbers themselves are always read from the file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

LONGEST_ARRAY = 64
"""Metadata arrays above this length (vocabulary, merges) are left out: the reference computes with ids only."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies. `shape` is (rows, columns) or (columns,), slowest first."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int
    bytes: int


class ReferenceFile:
    """One GGUF file: metadata, and tensors as float32.

    index: path of the JSON copy of the tensor list; written when it does not exist. None reads the file afresh.
    """

    def __init__(self, path: Path, index: Path | None = None) -> None:
        self.path = path
        if index is not None and index.exists():
            stored = json.loads(index.read_text())
        else:
            stored = _read_index(path)
            if index is not None:
                index.parent.mkdir(parents=True, exist_ok=True)
                draft = index.with_suffix(".tmp")
                draft.write_text(json.dumps(stored))
                draft.replace(index)
        self.metadata: dict[str, Any] = stored["metadata"]
        self.entries: dict[str, Entry] = {
            e["name"]: Entry(e["name"], tuple(e["shape"]), e["ggml_type"], e["offset"], e["bytes"])
            for e in stored["tensors"]
        }
        self._bytes: NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes, one row of the matrix per row of the result."""
        entry = self.entries[name]
        data = self._bytes[entry.offset : entry.offset + entry.bytes]
        rows = entry.shape[0] if len(entry.shape) > 1 else 1
        return data.reshape(rows, -1)

    def rows(self, name: str, ids: NDArray[np.int64]) -> F32:
        """Some rows of a matrix."""
        return _dequantize(self.raw(name)[ids], self.entries[name].ggml_type)

    def weight(self, name: str) -> F32:
        """A whole tensor in its own shape."""
        entry = self.entries[name]
        return _dequantize(self.raw(name), entry.ggml_type).reshape(entry.shape)


def _dequantize(data: NDArray[np.uint8], ggml_type: int) -> F32:
    kind = gguf.GGMLQuantizationType(ggml_type)
    return np.ascontiguousarray(gguf.quants.dequantize(np.ascontiguousarray(data), kind), dtype=np.float32)


def _read_index(path: Path) -> dict[str, Any]:
    reader = gguf.GGUFReader(path)
    metadata: dict[str, Any] = {}
    for name, found in reader.fields.items():
        if len(found.data) <= LONGEST_ARRAY:
            metadata[name] = found.contents()
    tensors = [
        asdict(
            Entry(
                name=tensor.name,
                shape=tuple(int(n) for n in reversed(tensor.shape)),
                ggml_type=int(tensor.tensor_type),
                offset=int(tensor.data_offset),
                bytes=int(tensor.n_bytes),
            )
        )
        for tensor in reader.tensors
    ]
    return {"metadata": metadata, "tensors": tensors}
