"""`GET /v1/models`: what is on offer, in the shape of the OpenAI list. Gears and windows are extensions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from gearshift.catalog import GEARS, ModelEntry, service_tier_of


class Model(msgspec.Struct):
    """One model."""

    id: str
    created: int
    owned_by: str
    context_window: int
    service_tiers: list[str]
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct):
    """All of them."""

    data: list[Model]
    object: Literal["list"] = "list"


def model(entry: ModelEntry) -> Model:
    """A catalogue entry in this shape."""
    return Model(
        id=entry.id,
        created=entry.created,
        owned_by=entry.owner,
        context_window=entry.context_window,
        service_tiers=[service_tier_of(gear) for gear in GEARS],
    )


def model_list(entries: Iterable[ModelEntry]) -> ModelList:
    """Entries as a list."""
    return ModelList([model(entry) for entry in entries])
