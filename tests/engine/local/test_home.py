"""A cache folder that cannot be: the error says which, why, and how to choose another."""

from __future__ import annotations

from pathlib import Path

import pytest

from gearshift.engine.local.home import CacheProblem, file_sha256, home, locked


@pytest.mark.parametrize(
    "named", ["/proc/x", "/dev/null/x", "/proc/self/status", "~no-such-user/x", "/tmp/" + "x" * 300]
)
def test_a_folder_that_cannot_be_made_is_named(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARSHIFT_HOME", named)
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    with pytest.raises(CacheProblem, match="set GEARSHIFT_HOME to") as caught, locked(home() / "a" / "file"):
        pass
    assert named in str(caught.value)
    with pytest.raises(CacheProblem):
        file_sha256(model)
