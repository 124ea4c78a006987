"""What the schema language cannot say about our bodies, said to schemathesis: it loads this file by SCHEMATHESIS_HOOKS.

- JSON Schema counts 1.0 as an integer; we do not.
- `best_of` must equal `n`; `top_logprobs` of chat needs `logprobs`; `echo` excludes them; prompts times `n` have a
  limit; tools have names of their own.
"""

from __future__ import annotations

from typing import Any, cast

import schemathesis

WHOLE = ("n", "seed", "top_k", "top_logprobs", "logprobs", "max_tokens", "max_completion_tokens", "max_output_tokens")


@schemathesis.hook  # pyright: ignore[reportUnknownMemberType]
def map_body(context: Any, body: Any) -> Any:
    """A generated body without what is only wrong in combination."""
    return without_conflicts(cast(dict[str, Any], body)) if isinstance(body, dict) else body


def without_conflicts(body: dict[str, Any]) -> dict[str, Any]:
    body = {key: whole(value) if key in WHOLE else value for key, value in body.items() if key != "best_of"}
    if "messages" in body and not body.get("logprobs"):
        body.pop("top_logprobs", None)
    if isinstance(body.get("tools"), list):
        body["tools"] = body["tools"][:1]
    if body.get("echo"):
        body.pop("logprobs", None)
    if isinstance(body.get("prompt"), list):
        body.pop("n", None)
        body["prompt"] = whole(body["prompt"])
    return body


def whole(value: Any) -> Any:
    if isinstance(value, list):
        return [whole(one) for one in cast(list[Any], value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value
