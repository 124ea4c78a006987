"""Fields of sampling that several endpoints share, with their limits, and their translation into a `Sampling`. Those of
the gear are in `gears`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from gearshift.engine.protocol import Sampling
from gearshift.wire.errors import invalid
from gearshift.wire.gears import GearFields

MAX_CHOICES = 128
MAX_STOPS = 4
MAX_TOP_LOGPROBS = 20
MAX_TOKENS = 1 << 30
"""Far beyond any window: only keeps absurd numbers away from the engine."""

MAX_BIAS = 100

_TOKEN = re.compile("^(0|[1-9][0-9]{0,8})$")
_SEED_LOW, _SEED_HIGH = -(1 << 63), (1 << 64) - 1

Temperature = Annotated[float, Meta(ge=0, le=2)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Biases = Annotated[
    dict[str, Annotated[Any, Meta(extra_json_schema={"type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS})]],
    Meta(extra_json_schema={"propertyNames": {"pattern": _TOKEN.pattern}}),
]
"""Keys and values are checked by `_biases`, which names the key at fault: the decoder cannot."""
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Tokens = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
TokensOrNone = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
"""Legacy completions may ask for none at all: that echoes, and fills the cache."""
TopLogprobs = Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)]
ModelName = Annotated[str, Meta(min_length=1, max_length=256)]
Seed = Annotated[int, Meta(extra_json_schema={"minimum": _SEED_LOW, "maximum": _SEED_HIGH})]
Stop = Annotated[str, Meta(min_length=1)]
Stops = Annotated[list[Stop], Meta(max_length=MAX_STOPS)]


class SamplingFields(GearFields, kw_only=True):
    """Sampling as every endpoint takes it. The last four are extensions that load tools and local servers share."""

    temperature: Temperature | None = None
    top_p: Fraction | None = None
    seed: Seed | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 30)] | None = None
    min_p: Fraction | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    ignore_eos: bool | None = None


class ChoiceFields(SamplingFields, kw_only=True):
    """What chat and legacy completions have beside that; the responses endpoint has none of it."""

    n: Choices | None = None
    stop: Stop | Stops | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Biases | None = None


def sampling_of(fields: SamplingFields, *, max_tokens: int | None, logprobs: int | None) -> Sampling:
    """The fields as a `Sampling`; null and absent mean the default. Raises WireError."""
    given = fields if isinstance(fields, ChoiceFields) else ChoiceFields()
    stop = given.stop or ()
    return Sampling(
        max_tokens=max_tokens,
        temperature=1.0 if fields.temperature is None else fields.temperature,
        top_p=1.0 if fields.top_p is None else fields.top_p,
        top_k=max(fields.top_k or 0, 0),
        min_p=fields.min_p or 0.0,
        presence_penalty=given.presence_penalty or 0.0,
        frequency_penalty=given.frequency_penalty or 0.0,
        repetition_penalty=1.0 if fields.repetition_penalty is None else fields.repetition_penalty,
        logit_bias=_biases(given.logit_bias or {}),
        seed=_seed(fields.seed),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        logprobs=logprobs,
        ignore_eos=bool(fields.ignore_eos),
        n=given.n or 1,
    )


def _biases(biases: Mapping[str, object]) -> tuple[tuple[int, float], ...]:
    """Biases by token id."""
    found: list[tuple[int, float]] = []
    for token, bias in biases.items():
        if not _TOKEN.fullmatch(token):
            raise invalid(f"Expected token ids as the keys of 'logit_bias', got {token[:100]!r}.", "logit_bias")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -MAX_BIAS <= bias <= MAX_BIAS:
            expected = f"Expected a number from -{MAX_BIAS} to {MAX_BIAS}"
            raise invalid(f"{expected} for the token {token} in 'logit_bias', got {str(bias)[:100]!r}.", "logit_bias")
        found.append((int(token), float(bias)))
    return tuple(found)


def _seed(seed: int | None) -> int | None:
    """A seed in 64 bits; a negative one stands for its two's complement."""
    if seed is None:
        return None
    if not _SEED_LOW <= seed <= _SEED_HIGH:
        raise invalid(f"Expected an integer of at most 64 bits, got {seed} at 'seed'.", "seed")
    return seed & _SEED_HIGH
