"""Set-up for all tests: the embedded model is opened once, and property-based tests draw the same cases in every run,
so that a failure can be repeated. `make test-long` sets GEARSHIFT_TEST_SEED=random to draw new ones.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from gearshift import _kernel
    from gearshift.engine.local.load import OpenModel

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("random" if os.environ.get("GEARSHIFT_TEST_SEED") == "random" else "fixed")

# A job in the background of a script is started deaf to Ctrl-C, and so are its children: the tests of it need ears.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def smollm2() -> OpenModel:
    """The embedded model, opened once for all tests that run it."""
    # Imported here, so that tests that need no model run where no kernel is built.
    from gearshift.engine.local.load import open_model
    from tests.models_for_tests.real import SMOLLM2, real_model_file

    return open_model(SMOLLM2, real_model_file(SMOLLM2))


@pytest.fixture(scope="session")
def gemma() -> OpenModel:
    """The model with sliding windows; tests that take it skip where it was never added."""
    from gearshift.engine.local.load import open_model
    from tests.models_for_tests.real import GEMMA, real_model_file

    return open_model(GEMMA, real_model_file(GEMMA))


@pytest.fixture(scope="session")
def kernel_threads() -> _kernel.Threads:
    """One team of kernel threads for all tests."""
    from gearshift import _kernel

    return _kernel.Threads(min(2, len(os.sched_getaffinity(0))))
