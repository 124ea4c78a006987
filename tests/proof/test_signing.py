"""Signed reports: what was signed is what is read back, and any change is noticed."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from gearshift.proof.report import PassCounts, Report, Subject
from gearshift.proof.signing import BadKey, BadProof, sign, signing_key, to_json, verified


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("GEARSHIFT_HOME", str(tmp_path))


def report() -> Report:
    subject = Subject("m", "a" * 64, "avx2", "b" * 64, 2, "0.1", 3, 20, "c" * 64)
    passes = [PassCounts("p", ["standard"], "cold", 1, 0, turns=3, drafted=5, kept=2, seconds=0.25)]
    return Report(subject, "2026-12-01T00:00:00+00:00", passes, 10, 100, complete=True)


def test_a_signed_report_is_read_back() -> None:
    found, signed = verified(to_json(sign(report())))
    assert found == report()
    assert signed.fingerprint == sign(report()).fingerprint
    assert signed.fingerprint.startswith("SHA256:")


def test_another_layout_of_the_file_is_the_same_report() -> None:
    data = msgspec.json.decode(to_json(sign(report())))
    data["report"] = dict(reversed(data["report"].items()))
    assert verified(msgspec.json.encode(data))[0] == report()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("report", "differences"), 1),
        (("report", "verdict"), "different"),
        (("report", "subject", "model_sha256"), "d" * 64),
        (("report", "added"), "by somebody"),
        (("signature",), "A" * 86 + "=="),
    ],
)
def test_any_change_is_noticed(path: tuple[str, ...], value: object) -> None:
    data = msgspec.json.decode(to_json(sign(report())))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(BadProof, match="changed after it was signed"):
        verified(msgspec.json.encode(data))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"report": {}, "public_key": "x", "signature": ""}', b"\xff"])
def test_what_is_no_proof_is_refused(content: bytes) -> None:
    with pytest.raises(BadProof, match="no signed proof"):
        verified(content)


def test_the_key_is_made_once_and_only_for_its_owner(tmp_path: Path) -> None:
    first = signing_key().public_key()
    assert signing_key().public_key() == first
    path = tmp_path / "keys" / "proof.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(BadKey, match="chmod 600"):
        signing_key()


def test_a_key_file_that_holds_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "proof.pem"
    path.parent.mkdir()
    path.touch(mode=0o600)
    with pytest.raises(BadKey, match="holds no private key"):
        signing_key()
