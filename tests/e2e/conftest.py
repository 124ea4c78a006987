"""A real server with the embedded model, in a process of its own, started once for all end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.e2e.started import Started, started
from tests.models_for_tests.real import SMOLLM2, real_model_file


@pytest.fixture(scope="session")
def server() -> Iterator[Started]:
    real_model_file(SMOLLM2)
    with started("--max-streams", "32", "--cache-tokens", "65536") as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Started) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120) as client:
        yield client
