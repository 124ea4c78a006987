"""`GET /v1/models` for Codex, with its tag, and for everyone else."""

from __future__ import annotations

import httpx

from tests.server.running import running


def test_codex_gets_its_own_shape_with_a_tag() -> None:
    with running(keys=("key",)) as server:
        url = f"{server.url}/v1/models?client_version=0.171.0"
        assert httpx.get(url).status_code == 401
        headers = {"authorization": "Bearer key"}
        answer = httpx.get(url, headers=headers)
        assert [entry["slug"] for entry in answer.json()["models"]] == ["scripted"]
        assert answer.headers["cache-control"] == "no-cache"
        tag = answer.headers["etag"]
        known = httpx.get(url, headers=headers | {"if-none-match": f'"other", {tag}'})
        assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
        assert httpx.get(url, headers=headers | {"if-none-match": '"other"'}).status_code == 200
        assert httpx.get(f"{server.url}/v1/models", headers=headers).json()["object"] == "list"
