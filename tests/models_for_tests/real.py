"""The two real models, where `gearshift models` keeps them.

The first is fetched when it is not there, since everything is tested on it; the second has terms that only a person can
accept, so its tests are skipped, loudly, until somebody has added it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from gearshift.catalog.sources import SOURCES
from gearshift.engine.local.download import fetch, source_path
from gearshift.engine.local.home import home
from tests.reference.states import StoredReference

SMOLLM2 = "smollm2-135m-instruct"
GEMMA = "gemma-3-270m"
REAL_MODELS = (SMOLLM2, GEMMA)


def real_model_file(name: str) -> Path:
    """The model's GGUF file; skips the test when it is one that must be added by hand and is not here."""
    if SOURCES[name].terms is None:
        return fetch(name)
    path = source_path(name)
    if not path.exists():
        pytest.skip(f"{name} is not in the cache folder; run: gearshift models add {name}")
    return path


def stored_reference(name: str, run: str = "exact") -> StoredReference:
    """The reference of a real model."""
    path = real_model_file(name)
    return _reference(name, path, run)


@cache
def _reference(name: str, path: Path, run: str) -> StoredReference:
    return StoredReference(path, SOURCES[name].sha256, home() / "tests", run)
