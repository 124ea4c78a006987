"""`POST /v1/completions`, the legacy endpoint: the model continues a text (or token ids) as it stands. How the answer
looks is in `completions_answer`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from gearshift.conversation import Prompt, RawText, RawTokens
from gearshift.service import Asked
from gearshift.wire.answer import Answer, Heading
from gearshift.wire.chunks import StreamOptions
from gearshift.wire.completions_answer import CompletionStream, PlainCompletion
from gearshift.wire.decode import decode
from gearshift.wire.errors import invalid, not_served
from gearshift.wire.gears import asked_of
from gearshift.wire.sampling import (
    MAX_CHOICES,
    ChoiceFields,
    Choices,
    ModelName,
    TokensOrNone,
    TopLogprobs,
    sampling_of,
)

DEFAULT_MAX_TOKENS = 16
"""What clients of this endpoint get when they name no limit."""
MAX_PROMPTS = 64
"""Most prompts in one request."""

TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Tokenised = Annotated[list[TokenId], Meta(min_length=1)]
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1}, "minItems": 1}
PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_PROMPTS},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1, "maxItems": MAX_PROMPTS},
    ]
}
"""What `prompt` may be; the annotation below also lets mixtures in, which `_prompts` refuses."""


class CompletionRequest(ChoiceFields, kw_only=True):
    """A completion request. Unknown fields are ignored; `suffix` and `best_of` beyond `n` are refused, not ignored."""

    model: ModelName
    prompt: str | Annotated[list[str | TokenId | Tokenised], Meta(min_length=1)]
    max_tokens: TokensOrNone | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: TopLogprobs | None = None
    echo: bool | None = None
    suffix: Annotated[str, Meta(extra_json_schema={"maxLength": 0})] | None = None
    best_of: Choices | None = None


_decoder = msgspec.json.Decoder(CompletionRequest)


class Completion:
    """A completion request, read and found right."""

    def __init__(self, request: CompletionRequest) -> None:
        self._request = request
        self.stream = bool(request.stream)
        if request.suffix:
            raise not_served("Filling in before a suffix", "suffix", "Leave it out.")
        if request.best_of is not None and request.best_of != (request.n or 1):
            raise not_served("Choosing the best of several", "best_of", "Leave it out, or give the value of 'n'.")
        if request.echo and request.logprobs is not None:
            what, instead = "Log-probabilities of an echoed prompt", "Leave out 'echo' or 'logprobs'."
            raise not_served(what, "logprobs", instead, verb="are")
        sampling = sampling_of(
            request,
            max_tokens=DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens,
            logprobs=request.logprobs,
        )
        prompts, echo = _prompts(request.prompt), bool(request.echo)
        self._choices = sampling.n * len(prompts)
        if self._choices > MAX_CHOICES:
            raise invalid(f"Expected at most {MAX_CHOICES} choices over all prompts at 'n'.", "n")
        self._asked = [asked_of(request, request.model, prompt, sampling, echo=echo) for prompt in prompts]

    def asked(self) -> list[Asked]:
        return self._asked

    def answer(self, heading: Heading) -> Answer:
        request = self._request
        if not self.stream:
            return PlainCompletion(heading, self._choices, logprobs=request.logprobs)
        return CompletionStream(heading, self._choices, request.stream_options, logprobs=request.logprobs)

    def fields(self) -> dict[str, str]:
        return {"gear": "service_tier"}


def read_completion(body: bytes) -> Completion:
    """The request in a body. Raises WireError."""
    return Completion(decode(_decoder, body))


def _prompts(prompt: str | list[str | int | list[int]]) -> list[Prompt]:
    """One prompt for each text or list of ids; a flat list of ids is one prompt."""
    if isinstance(prompt, str):
        return [RawText(prompt)]
    ids = [part for part in prompt if isinstance(part, int)]
    if len(ids) == len(prompt):
        return [RawTokens(tuple(ids))]
    if len(prompt) > MAX_PROMPTS:
        raise invalid(
            f"Expected at most {MAX_PROMPTS} prompts in one request, got {len(prompt)} at 'prompt'.", "prompt"
        )
    prompts: list[Prompt] = []
    for part in prompt:
        if type(part) is not type(prompt[0]) or isinstance(part, int):
            raise invalid("Expected texts only, token ids only or lists of token ids only at 'prompt'.", "prompt")
        prompts.append(RawText(part) if isinstance(part, str) else RawTokens(tuple(part)))
    return prompts
