"""Token counts as chat and legacy completions show them."""

from __future__ import annotations

import msgspec

from gearshift.accounts import Usage


class PromptTokensDetails(msgspec.Struct):
    """Prompt tokens that were found in the cache."""

    cached_tokens: int


class CompletionUsage(msgspec.Struct):
    """Exact counts of one turn, over all its choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


def completion_usage(usage: Usage) -> CompletionUsage:
    """The counts in this shape."""
    return CompletionUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptTokensDetails(usage.cached_tokens),
    )
