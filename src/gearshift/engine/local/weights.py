"""Packed weights: made once per model file and kernel format, kept in the cache folder, mapped at every start.

A packed file begins with a head that follows from the model file alone, so a file that is damaged, stale or of
another format shows by its first bytes or its size and is made anew. How a matrix is packed is the kernel's
business (kernel/linear.h); this module cuts matrices into rows so that memory stays bounded, puts the parts in
their places, and lays the finished file into large pages, where a step reads it faster than from the mapped file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift import _kernel
from gearshift.engine.local.gguf import Gguf, Tensor
from gearshift.engine.local.home import Progress, file_sha256, home, locked, replacing, silent
from gearshift.engine.local.shape import shape_of, tensor_dims

PLAIN_BITS = 32
_MAGIC = b"GEARPACK"
_PAGE = 4096
_LINE = 64
_GROUP = 16
"""Output channels per group in the kernel's layout: rows are packed in multiples of it."""
_LARGE_PAGE = 1 << 21
_CHUNK_WEIGHTS = 1 << 22
"""Weights packed at a time: about 16 MB of float32 in the kernel."""

Section = tuple[int, int, int, int, int]
"""offset, bytes, n_out, n_in, bits: as the kernel's `Model` takes it."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Packed weights in memory.

    Attributes:
        mapping: the packed file's bytes, in large pages where the system has them.
        tensors: GGUF name -> section, as the kernel's `Model` takes it.
        sha256: digest of the model file that they came from.
    """

    mapping: NDArray[np.uint8]
    tensors: Mapping[str, Section]
    sha256: str


def load_weights(gguf: Gguf, progress: Progress = silent) -> Weights:
    """The packed weights of an open model file, packed now if they are not in the cache folder yet.

    Raises:
        BadModelFile: the model does not run here.
        CacheProblem: the cache folder cannot be written.
    """
    sha256 = file_sha256(gguf.path, progress)
    sections, size = _plan(gguf)
    head = _head(sha256, sections, size)
    target = home() / "packed" / f"{sha256}-v{_kernel.FORMAT_VERSION}.weights"
    mapping = _map(target, head, size)
    if mapping is None:
        with locked(target, lambda: progress("waiting for another process that packs the weights", 0, 1)):
            mapping = _map(target, head, size)
            if mapping is None:
                with replacing(target, size) as file:
                    _write(gguf, file, head, sections, progress)
                mapping = _map(target, head, size)
    if mapping is None:
        raise gguf.bad(f"its packed form {target} cannot be read back; delete that file and try again")
    return Weights(_in_large_pages(mapping), sections, sha256)


def _plan(gguf: Gguf) -> tuple[dict[str, Section], int]:
    """Where every tensor lies in the packed file, and the file's size."""
    sections: dict[str, Section] = {}
    at = _PAGE
    names = tensor_dims(shape_of(gguf))
    # The head lists every section in JSON; keep room for it.
    at += -(-len(names) * 96 // _PAGE) * _PAGE
    for name in names:
        tensor = gguf.tensors[name]
        if len(tensor.dims) == 2:
            n_in, n_out = tensor.dims
            bits = _kernel.default_bits(tensor.type.id)
            size = _kernel.packed_bytes(n_out, n_in, bits)
        else:
            n_out, n_in, bits = 1, tensor.dims[0], PLAIN_BITS
            size = 4 * n_in
        sections[name] = (at, size, n_out, n_in, bits)
        at += -(-size // _LINE) * _LINE
    return sections, at


def _head(sha256: str, sections: Mapping[str, Section], size: int) -> bytes:
    """The first bytes of a packed file: they say all that the sections depend on."""
    told = {"format": _kernel.FORMAT_VERSION, "source": sha256, "bytes": size, "sections": sections}
    head = _MAGIC + msgspec.json.encode(told)
    first = min(section[0] for section in sections.values())
    if len(head) > first:
        raise AssertionError(f"the head needs {len(head)} bytes, but the first section begins at {first}")
    return head.ljust(first, b"\0")


def _map(target: Path, head: bytes, size: int) -> NDArray[np.uint8] | None:
    """A finished packed file, or None when there is none that fits."""
    try:
        with target.open("rb") as file:
            if file.read(len(head)) != head or target.stat().st_size != size:
                return None
            mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return None
    mapping.madvise(mmap.MADV_WILLNEED)
    return np.frombuffer(mapping, np.uint8)


def _in_large_pages(mapping: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy in memory of large pages. A step streams all weights; in pages of 4 KB that costs it a tenth of its
    time in address translation. The file's own pages stay the system's to drop."""
    area = mmap.mmap(-1, -(-mapping.nbytes // _LARGE_PAGE) * _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    copy = np.frombuffer(area, np.uint8)[: mapping.nbytes]
    copy[:] = mapping
    return copy


def _write(gguf: Gguf, file: BinaryIO, head: bytes, sections: Mapping[str, Section], progress: Progress) -> None:
    total = sum(gguf.tensors[name].bytes for name in sections)
    done = 0
    for name, section in sections.items():
        tensor = gguf.tensors[name]
        try:
            if section[4] == PLAIN_BITS:
                _write_vector(gguf, file, tensor, section)
                done += tensor.bytes
                progress("packing weights", done, total)
                continue
            for step in _write_matrix(gguf, file, tensor, section):
                done += step
                progress("packing weights", done, total)
        except ValueError as error:
            raise gguf.bad(f"tensor {name} cannot be packed: {error}") from None
    # The head comes last: until it is there, nothing takes the file for a finished one.
    file.seek(0)
    file.write(head)


def _write_vector(gguf: Gguf, file: BinaryIO, tensor: Tensor, section: Section) -> None:
    values = _kernel.dequantize(gguf.data(tensor), tensor.type.id, tensor.count)
    if not np.isfinite(values).all():
        raise ValueError("it has values that are not finite")
    file.seek(section[0])
    file.write(values.tobytes())


def _write_matrix(gguf: Gguf, file: BinaryIO, tensor: Tensor, section: Section) -> Iterator[int]:
    """Pack a matrix by groups of rows; yields the source bytes of each part.

    In the kernel's layout all scales of a matrix come before all records, so the two halves of each packed part go
    to two places.
    """
    offset, _, n_out, n_in, bits = section
    data = gguf.data(tensor)
    row_bytes = tensor.bytes // n_out
    rows = max(_GROUP, _CHUNK_WEIGHTS // n_in // _GROUP * _GROUP)
    groups = -(-n_out // _GROUP)
    records = (_kernel.packed_bytes(n_out, n_in, bits) - 4 * _GROUP * groups) // groups
    for row in range(0, n_out, rows):
        count = min(rows, n_out - row)
        part = data[row * row_bytes : (row + count) * row_bytes]
        packed = memoryview(_kernel.pack_linear(part, tensor.type.id, count, n_in, bits))
        scales = 4 * _GROUP * -(-count // _GROUP)
        file.seek(offset + 4 * row)
        file.write(packed[:scales])
        file.seek(offset + 4 * _GROUP * groups + row // _GROUP * records)
        file.write(packed[scales:])
        yield len(part)
