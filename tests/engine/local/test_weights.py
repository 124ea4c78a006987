"""Packed weights are what the kernel packs, are made once, and are made anew when the file is not sound."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from gearshift import _kernel
from gearshift.engine.local import home as home_room
from gearshift.engine.local import weights as weights_room
from gearshift.engine.local.gguf import BadModelFile, Gguf
from gearshift.engine.local.home import CacheProblem
from gearshift.engine.local.weights import PLAIN_BITS, Weights, load_weights
from tests.engine.local.small_files import write_model


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    types = {"blk.0.ffn_up.weight": GGMLQuantizationType.F16, "blk.1.ffn_up.weight": GGMLQuantizationType.Q4_0}
    return write_model(tmp_path / "m.gguf", "gemma3", types=types)


def load(path: Path) -> Weights:
    with Gguf.open(path) as gguf:
        return load_weights(gguf)


def packed_files(cache: Path) -> list[Path]:
    return [path for path in (cache / "packed").iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize("chunk", [1, 1 << 11, 1 << 22])
def test_every_tensor_is_as_the_kernel_packs_it_whole(model: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_room, "_CHUNK_WEIGHTS", chunk)
    weights = load(model)
    with Gguf.open(model) as gguf:
        assert set(weights.tensors) == set(gguf.tensors)
        for name, (offset, size, n_out, n_in, bits) in weights.tensors.items():
            tensor = gguf.tensors[name]
            stored = weights.mapping[offset : offset + size].tobytes()
            assert offset % 64 == 0
            if bits == PLAIN_BITS:
                assert tensor.dims == (n_out * n_in,)
                assert stored == _kernel.dequantize(gguf.data(tensor), tensor.type.id, tensor.count).tobytes()
            else:
                assert tensor.dims == (n_in, n_out)
                assert stored == _kernel.pack_linear(gguf.data(tensor), tensor.type.id, n_out, n_in, bits)


def test_a_second_load_packs_nothing(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(model)

    def never(*_: Any) -> None:
        raise AssertionError("packed again")

    monkeypatch.setattr(weights_room, "_write", never)
    second = load(model)
    assert np.array_equal(first.mapping, second.mapping)
    assert first.tensors == second.tensors
    assert [path.name for path in packed_files(cache)] == [f"{first.sha256}-v{_kernel.FORMAT_VERSION}.weights"]


@pytest.mark.parametrize("damage", ["head", "cut", "longer", "empty", "other"])
def test_a_damaged_packed_file_is_made_anew(model: Path, cache: Path, damage: str) -> None:
    sound = load(model).mapping.tobytes()
    (path,) = packed_files(cache)
    content = {
        "head": sound[:40] + b"\xff" + sound[41:],
        "cut": sound[:-64],
        "longer": sound + b"\0",
        "empty": b"",
        "other": b"not at all a packed file" * 999,
    }[damage]
    path.unlink()
    path.write_bytes(content)
    assert load(model).mapping.tobytes() == sound


def test_a_full_disk_is_told_and_leaves_nothing(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(home_room.os, "posix_fallocate", full)
        with pytest.raises(CacheProblem, match="disk is full; free some space, or set GEARSHIFT_HOME"):
            load(model)
    assert packed_files(cache) == []
    assert len(load(model).mapping)


def test_a_stop_in_the_middle_leaves_nothing(model: Path, cache: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if what == "packing weights" and done > total // 2:
            raise KeyboardInterrupt

    with Gguf.open(model) as gguf, pytest.raises(KeyboardInterrupt):
        load_weights(gguf, stop)
    assert packed_files(cache) == []


def test_progress_ends_at_the_total(model: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with Gguf.open(model) as gguf:
        load_weights(gguf, lambda what, done, total: told.append((what, done, total)))
    packing = [(done, total) for what, done, total in told if what == "packing weights"]
    assert packing == sorted(packing)
    assert packing[-1][0] == packing[-1][1] > 0


def test_a_norm_that_is_not_finite_is_refused(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path / "nan.gguf")
    with Gguf.open(path) as gguf:
        start = gguf.tensors["output_norm.weight"].start
    content = bytearray(path.read_bytes())
    content[start : start + 4] = np.float32(np.nan).tobytes()
    path.write_bytes(bytes(content))
    with pytest.raises(BadModelFile, match=r"output_norm\.weight cannot be packed: .* not finite"):
        load(path)
    assert packed_files(cache) == []


def test_a_changed_model_file_is_noticed(model: Path, cache: Path) -> None:
    before = load(model).sha256
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(bytes(content))
    assert load(model).sha256 != before
    assert len(packed_files(cache)) == 2
