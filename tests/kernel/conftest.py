"""Models for the kernel's tests, each loaded once per session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.running import Loaded
from tests.models_for_tests.real import real_model_file
from tests.models_for_tests.synthetic import Synthetic, write_synthetic


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Loaded]:
    """Opens a real model by name."""
    opened: dict[str, Loaded] = {}

    def open_model(name: str) -> Loaded:
        if name not in opened:
            opened[name] = Loaded.open(real_model_file(name))
        return opened[name]

    return open_model


@pytest.fixture(scope="session")
def synthetic_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Synthetic], tuple[Path, Loaded]]:
    """Writes and opens a synthetic model; its packed weights go to a folder of the test run."""
    folder = tmp_path_factory.mktemp("synthetic")
    opened: dict[Synthetic, tuple[Path, Loaded]] = {}

    def open_model(model: Synthetic) -> tuple[Path, Loaded]:
        if model not in opened:
            path = write_synthetic(folder / f"{len(opened)}.gguf", model)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("GEARSHIFT_HOME", str(folder / "home"))
                opened[model] = (path, Loaded.open(path))
        return opened[model]

    return open_model
