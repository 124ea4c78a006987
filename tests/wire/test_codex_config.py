"""The settings for Codex, as a file and as overrides: both say the same of the server."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from gearshift.wire.codex_config import BadAddress, configuration, overrides

URL = "http://127.0.0.1:8000"


def test_the_file_names_the_server_and_asks_for_its_catalogue() -> None:
    read = tomllib.loads(configuration(f"{URL}/v1/"))
    assert read["model_provider"] == "gearshift"
    provider = read["model_providers"]["gearshift"]
    assert provider["base_url"] == f"{URL}/v1"
    assert provider["model_catalog_url"] == f"{URL}/v1/models"
    assert provider["supports_websockets"] is True
    # This name would make Codex compact on the server.
    assert provider["name"] != "OpenAI"
    assert provider["capabilities"] == {"remote_compaction": "unsupported"}


def test_without_a_key_one_is_made_up_since_codex_asks_for_no_catalogue_without() -> None:
    provider = tomllib.loads(configuration(URL))["model_providers"]["gearshift"]
    assert provider["experimental_bearer_token"]
    assert "env_key" not in provider
    provider = tomllib.loads(configuration(URL, "SOME_KEY"))["model_providers"]["gearshift"]
    assert provider["env_key"] == "SOME_KEY"
    assert "experimental_bearer_token" not in provider


def test_overrides_say_the_same() -> None:
    said: dict[str, Any] = tomllib.loads("\n".join(overrides(URL, "SOME_KEY")))
    read = tomllib.loads(configuration(URL, "SOME_KEY"))
    assert said["model_providers"] == read["model_providers"]
    assert said["model_provider"] == read["model_provider"]


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://host", "http://", "http://host/other", "http:///v1"])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(BadAddress, match="Expected one like http"):
        configuration(url)
