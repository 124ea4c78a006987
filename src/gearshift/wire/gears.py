"""Fields that say how fast an answer should come and what may be guessed for it; every endpoint takes them."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from gearshift.catalog import SERVICE_TIERS, GearName, gear_of
from gearshift.conversation import Prompt
from gearshift.engine.protocol import Constraint, Drafts, Sampling
from gearshift.service import Asked
from gearshift.wire.errors import invalid
from gearshift.wire.parts import Text, text_of

_DRAFTS: dict[str, Drafts] = {name: name for name in get_args(Drafts)}


class Prediction(msgspec.Struct):
    """Text that the answer is likely to repeat: drafts are taken from it, the answer stays the same."""

    type: Literal["content"]
    content: Text


class GearFields(msgspec.Struct, kw_only=True):
    """The gear and its drafts. `gear_fallback` and `drafts` are extensions; so is `prediction`, except for chat."""

    service_tier: (
        Annotated[
            str,
            Meta(
                description="The gear. Every gear gives the same answer; `auto`, `flex` and `scale` mean `default`.",
                extra_json_schema={"enum": list(SERVICE_TIERS)},
            ),
        ]
        | None
    ) = None
    gear_fallback: (
        Annotated[bool, Meta(description="Let a lower gear serve when all seats of this one are taken.")] | None
    ) = None
    drafts: (
        Annotated[
            str,
            Meta(
                description="Where drafts may come from: nowhere (`off`), prompt, answer and prediction (`cold`), or "
                "the caller's recent answers too (`warm`, the default). Drafts change the speed, never the answer.",
                extra_json_schema={"enum": list(_DRAFTS)},
            ),
        ]
        | None
    ) = None
    prediction: Prediction | None = None


def asked_of(
    fields: GearFields,
    model: str,
    prompt: Prompt,
    sampling: Sampling,
    *,
    echo: bool = False,
    constraint: Constraint | None = None,
) -> Asked:
    """A turn in our words. Raises WireError naming the allowed values of a field."""
    return Asked(
        model=model,
        prompt=prompt,
        sampling=sampling,
        gear=_gear(fields.service_tier),
        echo=echo,
        gear_fallback=bool(fields.gear_fallback),
        prediction=text_of(fields.prediction.content) if fields.prediction else "",
        drafts=_drafts(fields.drafts),
        constraint=constraint,
    )


def _gear(service_tier: str | None) -> GearName:
    try:
        return gear_of(service_tier)
    except ValueError as error:
        raise invalid(f"{error}.", "service_tier") from None


def _drafts(drafts: str | None) -> Drafts:
    if drafts is None:
        return "warm"
    try:
        return _DRAFTS[drafts]
    except KeyError:
        raise invalid(f"Unknown value {drafts!r} of 'drafts'; allowed: {', '.join(_DRAFTS)}.", "drafts") from None
