"""The settings that make Codex use a Gearshift server: as the config.toml of a folder of its own, and as overrides for
one run on top of whatever a folder says.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

PROVIDER = "gearshift"

# Codex asks for a catalogue only when it has a key to show; an open server does not look at it.
_NO_KEY = "an-open-server-needs-none"

_Value = str | bool | int


class BadAddress(ValueError):
    """The address is none that Codex could use."""


def settings(url: str, key_env: str | None) -> dict[str, dict[str, _Value]]:
    """Settings by table, the root's under "".

    url: of the server, without a path. key_env: the environment variable that holds the API key, if one is needed.

    Raises:
        BadAddress: `url` is not http(s)://host[:port].
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/", "/v1", "/v1/"):
        raise BadAddress(f"{url!r} is no address of a server. Expected one like http://127.0.0.1:8000.")
    base = f"{parts.scheme}://{parts.netloc}/v1"
    key: dict[str, _Value] = {"env_key": key_env} if key_env else {"experimental_bearer_token": _NO_KEY}
    provider = f"model_providers.{PROVIDER}"
    return {
        "": {"model_provider": PROVIDER, "web_search": "disabled"},
        provider: {
            "name": "Gearshift",
            "base_url": base,
            "model_catalog_url": f"{base}/models",
            "wire_api": "responses",
            "supports_websockets": True,
            **key,
        },
        # Conversations are compacted by Codex itself.
        f"{provider}.capabilities": {"remote_compaction": "unsupported"},
        # Tools and texts that make every request several times as long.
        "features": {"goals": False},
        "agents": {"enabled": False},
        "skills": {"include_instructions": False},
    }


def configuration(url: str, key_env: str | None = None) -> str:
    """A whole config.toml. Raises BadAddress."""
    lines: list[str] = ["# Written by `gearshift codex`. `/fast` and `/ultrafast` in Codex change the gear."]
    for table, values in settings(url, key_env).items():
        if table:
            lines += ["", f"[{table}]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join([*lines, ""])


def overrides(url: str, key_env: str | None = None) -> list[str]:
    """The same as `key=value` overrides, for what belongs to the server. Raises BadAddress."""
    found: list[str] = []
    for table, values in settings(url, key_env).items():
        if not table or table.startswith("model_providers."):
            prefix = f"{table}." if table else ""
            found += [f"{prefix}{name}={json.dumps(value)}" for name, value in values.items()]
    return found
