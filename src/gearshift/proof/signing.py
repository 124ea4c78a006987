"""Signed reports: who made a proof, and that nobody changed it since. One Ed25519 key per cache folder, made when it is
first needed.

The signature covers the canonical JSON of the report (keys sorted, no white space), every field of it, so that a file
may be laid out anew but not changed. Whether to trust the key is the reader's decision; its fingerprint is shown.
"""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gearshift.engine.local.home import explained, home, locked
from gearshift.proof.report import Report

_CONTEXT = b"gearshift proof 1\n"
"""Keeps a signature from meaning anything but a proof."""


class BadProof(Exception):
    """A file that holds no proof, or one that was changed after it was signed."""


class BadKey(Exception):
    """The signing key cannot be used. The message says what to do."""


class SignedReport(msgspec.Struct, forbid_unknown_fields=True):
    """A report with its signature.

    Attributes:
        report: see `Report`; plain data, so that fields of another version are kept and checked.
        public_key, signature: raw bytes in base64.
    """

    report: dict[str, Any]
    public_key: str
    signature: str

    @property
    def fingerprint(self) -> str:
        """The key's fingerprint."""
        return fingerprint(base64.b64decode(self.public_key))


def sign(report: Report) -> SignedReport:
    """Sign with this machine's key. Raises BadKey and CacheProblem."""
    key = signing_key()
    data: dict[str, Any] = msgspec.to_builtins(report) | {"verdict": report.verdict}
    public = key.public_key().public_bytes_raw()
    signature = key.sign(_CONTEXT + _canonical(data))
    return SignedReport(data, base64.b64encode(public).decode(), base64.b64encode(signature).decode())


def to_json(signed: SignedReport) -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(signed), indent=2) + b"\n"


def verified(content: bytes) -> tuple[Report, SignedReport]:
    """The report in a file, if the signature in it is right. Raises BadProof."""
    try:
        signed = msgspec.json.decode(content, type=SignedReport)
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(signed.public_key, validate=True))
        signature = base64.b64decode(signed.signature, validate=True)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadProof(
            f"this is no signed proof ({error}); expected a file that `gearshift prove --json` wrote"
        ) from None
    try:
        public.verify(signature, _CONTEXT + _canonical(signed.report))
    except InvalidSignature:
        raise BadProof("the signature does not fit: the report was changed after it was signed") from None
    try:
        report = msgspec.convert(signed.report, Report)
    except msgspec.ValidationError as error:
        raise BadProof(f"the signature is right, but the report is of another version: {error}") from None
    if signed.report.get("verdict") != report.verdict:
        raise BadProof(f"the signature is right, but the counts mean {report.verdict!r}, not what the report says")
    return report, signed


def fingerprint(public: bytes) -> str:
    """SHA-256 of a raw public key, as people compare it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")


def signing_key() -> Ed25519PrivateKey:
    """This machine's key, made now if there is none.

    Raises:
        BadKey: what lies there is no such key, or others may read it.
        CacheProblem: it cannot be written.
    """
    path = home() / "keys" / "proof.pem"
    with locked(path):
        if not path.exists():
            _make(path)
        if path.stat().st_mode & 0o077:
            raise BadKey(f"{path} can be read by others, so its signatures would say little; run: chmod 600 {path}")
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except (ValueError, TypeError) as error:
            raise BadKey(f"{path} holds no private key ({error}); move it away and a new one is made") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(f"{path} holds a key of another kind, expected Ed25519; move it away and a new one is made")
    return key


def _make(path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    part = path.with_name(f".{path.name}.new")
    with explained(path):
        part.unlink(missing_ok=True)
        # Never readable by others, not even for a moment.
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)


def _canonical(data: dict[str, Any]) -> bytes:
    return msgspec.json.encode(data, order="sorted")
