"""The cache folder: where model files and what is derived from them lie, and how a file gets there whole or not at all.

Writers take a lock per file and rename a finished temporary file into place, so readers need no lock, a killed
writer leaves nothing that looks finished, and its remains are swept by the next one. What the files hold is their
owners' business.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

CHUNK_BYTES = 1 << 20


class Progress(Protocol):
    """Told how far some lasting work is; called often, must be quick."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """`what` names the work for the user; `done` of `total` bytes are through."""
        ...


def silent(what: str, done: int, total: int) -> None:
    """Progress for nobody."""


class CacheProblem(Exception):
    """The cache folder cannot be used: full, read-only or not ours. The message says what to do."""


def home() -> Path:
    """The cache folder: GEARSHIFT_HOME, else `gearshift` in XDG_CACHE_HOME or ~/.cache.

    Raises:
        CacheProblem: a home directory is meant, and there is none.
    """
    named, base = os.environ.get("GEARSHIFT_HOME"), os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(named).expanduser() if named else (Path(base) if base else Path.home() / ".cache") / "gearshift"
    except RuntimeError:
        meant = named or "~/.cache/gearshift"
        raise CacheProblem(f"{meant}: there is no such home directory; set GEARSHIFT_HOME to a folder") from None


@contextmanager
def locked(target: Path, waiting: Callable[[], None] = lambda: None) -> Generator[None]:
    """Hold the lock of one file of the cache folder, across processes. `waiting` is called once when another
    process holds it. A dead process holds nothing.

    Raises:
        CacheProblem: the folder cannot be written.
    """
    lock = _beside(target, "lock")
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("wb")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def replacing(target: Path, size: int | None = None) -> Generator[BinaryIO]:
    """A new file that takes the place of `target` when the block ends well, and vanishes when it does not.
    Hold the lock of `target`. A known size is reserved first, so that a full disk is told before the work.

    Raises:
        CacheProblem: no space, or no permission.
    """
    part = _beside(target, "part")
    try:
        with explained(target), part.open("w+b") as file:
            if size:
                os.posix_fallocate(file.fileno(), 0, size)
            yield file
            file.flush()
            os.fsync(file.fileno())
        with explained(target):
            part.replace(target)
            _sync_folder(target.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def explained(target: Path) -> Generator[None]:
    """Turn the operating system's refusal to write into advice."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            wrong = "the disk is full; free some space"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            wrong = f"it cannot be written ({error.strerror}); make it writable"
        elif error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG):
            wrong = f"its folder cannot be made ({error.strerror}: {error.filename})"
        else:
            wrong = f"it cannot be used ({error.strerror or error}: {error.filename or target})"
        raise CacheProblem(f"{target}: {wrong}, or set GEARSHIFT_HOME to another folder") from error


class _Digest(msgspec.Struct, frozen=True):
    """What a file was like when it was hashed."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    sha256: str


def file_sha256(path: Path, progress: Progress = silent) -> str:
    """The SHA-256 of a file in hex, remembered in the cache folder until the file's size, time or inode change.

    Raises:
        OSError: the file cannot be read.
    """
    path = path.resolve()
    note = _note(path)
    stat = path.stat()
    try:
        known = msgspec.json.decode(note.read_bytes(), type=_Digest)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        known = None
    if known and known == _Digest(str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino, known.sha256):
        return known.sha256
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress(f"checking {path.name}", done, stat.st_size)
    remember_sha256(path, digest.hexdigest())
    return digest.hexdigest()


def remember_sha256(path: Path, sha256: str) -> None:
    """Note the digest of a file that has just been hashed on its way here."""
    path = path.resolve()
    note, stat = _note(path), path.stat()
    with locked(note), replacing(note) as file:
        file.write(msgspec.json.encode(_Digest(str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino, sha256)))


def _note(path: Path) -> Path:
    return home() / "digests" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{suffix}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
