"""Token counts and work, as chat and legacy completions show them; the responses endpoint shows the same work."""

from __future__ import annotations

import msgspec

from gearshift.accounts import Usage
from gearshift.catalog import GearName


class PromptTokensDetails(msgspec.Struct):
    """Prompt tokens that were found in the cache."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    """What of a prediction came true; both are 0 where none was sent. Rejected tokens are not part of the answer."""

    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    reasoning_tokens: int = 0
    audio_tokens: int = 0


class GearUsage(msgspec.Struct):
    """An extension: the gear that served, and the work that explains its speed. In the chunks of a stream, `rows` and
    `drafted` leave out drafts of open choices that were not kept: they are known when a choice ends.
    """

    gear: GearName
    steps: int
    rows: int
    drafted: int
    kept: int


class CompletionUsage(msgspec.Struct):
    """Exact counts of one turn, over all its choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
    gearshift: GearUsage


def completion_usage(usage: Usage) -> CompletionUsage:
    """The counts in this shape."""
    work = usage.work
    details = CompletionTokensDetails(work.kept, work.drafted - work.kept) if usage.predicted else None
    return CompletionUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptTokensDetails(usage.cached_tokens),
        completion_tokens_details=details or CompletionTokensDetails(),
        gearshift=gear_usage(usage),
    )


def gear_usage(usage: Usage) -> GearUsage:
    """The gear and the work."""
    work = usage.work
    return GearUsage(usage.gear, work.steps, work.rows, work.drafted, work.kept)
