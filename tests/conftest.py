"""Set-up for all tests: property-based tests draw the same cases in every run, so that a failure can be repeated.

`make test-long` sets GEARSHIFT_TEST_SEED=random to draw new ones.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("random" if os.environ.get("GEARSHIFT_TEST_SEED") == "random" else "fixed")
