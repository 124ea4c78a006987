"""What a generation must satisfy before it may join the queue: everything that the kernel would refuse is refused
here, so that one bad request never fails the others of its step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gearshift.engine.protocol import ContextOverflow, InvalidGeneration, Sampling

MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 20
MAX_STOPS = 16
MAX_STOP_LENGTH = 1024


def check_sampling(sampling: Sampling, vocab: int) -> None:
    """Raises InvalidGeneration naming the first field that is out of range."""
    _within("temperature", sampling.temperature, 0.0, 100.0)
    _within("top_p", sampling.top_p, 0.0, 1.0)
    _within("min_p", sampling.min_p, 0.0, 1.0)
    _within("top_k", sampling.top_k, 0, 2**31 - 1)
    _within("presence_penalty", sampling.presence_penalty, -100.0, 100.0)
    _within("frequency_penalty", sampling.frequency_penalty, -100.0, 100.0)
    _within("repetition_penalty", sampling.repetition_penalty, 0.01, 100.0)
    _within("n", sampling.n, 1, MAX_CHOICES)
    if sampling.logprobs is not None:
        _within("logprobs", sampling.logprobs, 0, MAX_TOP_LOGPROBS)
    if sampling.max_tokens is not None:
        _within("max_tokens", sampling.max_tokens, 0, 2**31 - 1)
    if len(sampling.stop) > MAX_STOPS or any(not 1 <= len(stop) <= MAX_STOP_LENGTH for stop in sampling.stop):
        raise InvalidGeneration(
            f"stop takes up to {MAX_STOPS} texts of 1 to {MAX_STOP_LENGTH} characters each.", "stop"
        )
    for token, bias in sampling.logit_bias:
        if not 0 <= token < vocab:
            raise InvalidGeneration(f"logit_bias names token {token}, but ids go from 0 to {vocab - 1}.", "logit_bias")
        _within("logit_bias", bias, -1000.0, 1000.0)


def check_prompt(prompt: Sequence[int], vocab: int) -> None:
    """Raises InvalidGeneration for an empty prompt or an id that the model does not have."""
    if not prompt:
        raise InvalidGeneration("The prompt has no tokens; give at least one.", "prompt")
    if min(prompt) < 0 or max(prompt) >= vocab:
        raise InvalidGeneration(f"The prompt has a token id outside 0 to {vocab - 1}.", "prompt")


def answer_limit(prompt_tokens: int, max_tokens: int | None, context: int) -> int:
    """Most tokens that a choice may produce. Raises ContextOverflow when prompt and demanded answer do not fit."""
    if prompt_tokens + (max_tokens or 0) > context or (max_tokens is None and prompt_tokens == context):
        raise ContextOverflow(prompt_tokens, max_tokens, context)
    return context - prompt_tokens if max_tokens is None else max_tokens


def _within(name: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise InvalidGeneration(f"{name} must be between {least:g} and {most:g}, but is {value!r}.", name)
