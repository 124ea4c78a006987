"""Log-probabilities of tokens in the three shapes that clients know."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gearshift.engine.protocol import TokenLogprob


class Alternative(msgspec.Struct):
    """One token that could have been chosen."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChosenToken(msgspec.Struct):
    """The token that was chosen, and the likeliest at its place."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[Alternative]


class LegacyLogprobs(msgspec.Struct):
    """Columns, as the legacy completions endpoint gives them."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


def chosen_tokens(logprobs: Sequence[TokenLogprob]) -> list[ChosenToken]:
    """The shape of chat and responses. A token that is no whole text shows replacement characters; `bytes` is exact."""
    return [
        ChosenToken(
            token=_text(one),
            logprob=one.logprob,
            bytes=list(one.token),
            top_logprobs=[Alternative(_text(other), other.logprob, list(other.token)) for other in one.top],
        )
        for one in logprobs
    ]


def legacy_logprobs(logprobs: Sequence[TokenLogprob], offset: int, alternatives: int) -> LegacyLogprobs:
    """The legacy shape; `offset` is where in the whole text the first token starts, in characters."""
    tokens = [_text(one) for one in logprobs]
    offsets: list[int] = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return LegacyLogprobs(
        tokens=tokens,
        token_logprobs=[one.logprob for one in logprobs],
        top_logprobs=[{_text(other): other.logprob for other in one.top} for one in logprobs] if alternatives else None,
        text_offset=offsets,
    )


def _text(one: TokenLogprob) -> str:
    return one.token.decode(errors="replace")
