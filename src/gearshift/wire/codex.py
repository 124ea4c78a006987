"""The catalogue in the shape that Codex reads from `GET /v1/models?client_version=`: without it Codex knows neither the
gears nor the window of a model and sends a prompt several times as long. One wrong entry makes Codex drop them all, so
every field that it requires is required here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from gearshift.catalog import GEARS, EffortName, GearName, ModelEntry, service_tier_of

INSTRUCTIONS = (
    "You are a coding agent in a terminal. Work in the current folder. Use exec_command to read files and to run "
    "commands. Change only what was asked for, check the result, and answer briefly."
)

_TIERS: dict[GearName, tuple[str, str]] = {
    "priority": ("Fast", "The same answers, sooner"),
    "ultrafast": ("Ultrafast", "The same answers, as soon as can be"),
}
"""Name and description of the gears above standard: each name in lower case is the command that shifts into it."""

_EFFORTS: dict[EffortName, str] = {
    "none": "Answers at once",
    "low": "Thinks a little",
    "medium": "Thinks for everyday work",
    "high": "Thinks for hard work",
    "xhigh": "Thinks for the hardest work",
    "max": "Thinks as long as it takes",
}

_OUTPUT_TOKENS = 10_000
_OUTPUT_PART = 4


class EffortOption(msgspec.Struct):
    """A reasoning effort to choose."""

    effort: str
    description: str


class TierOption(msgspec.Struct):
    """A gear to choose; `id` is what comes back as `service_tier`."""

    id: str
    name: str
    description: str


class Truncation(msgspec.Struct):
    """How much of a tool's output is sent."""

    limit: int
    mode: Literal["tokens"] = "tokens"


class UpgradeOffer(msgspec.Struct):
    """Where users of the model are asked to go. `retirement_at` must be a whole time in RFC 3339 to be understood."""

    model: str
    migration_markdown: str
    retirement_at: str | None


class CodexModel(msgspec.Struct, kw_only=True):
    """One model."""

    slug: str
    display_name: str
    description: str
    priority: int
    context_window: int
    max_context_window: int
    supported_reasoning_levels: list[EffortOption]
    default_reasoning_level: str | None
    supports_reasoning_summary_parameter: bool
    truncation_policy: Truncation
    service_tiers: list[TierOption]
    upgrade: UpgradeOffer | None
    base_instructions: str = INSTRUCTIONS
    visibility: Literal["list"] = "list"
    supported_in_api: bool = True
    shell_type: Literal["unified_exec"] = "unified_exec"
    support_verbosity: bool = False
    experimental_supported_tools: tuple[str, ...] = ()
    input_modalities: tuple[str, ...] = ("text",)
    default_service_tier: None = None


class CodexCatalogue(msgspec.Struct):
    """All models; the first is Codex's default."""

    models: list[CodexModel]


def catalogue(entries: Iterable[ModelEntry]) -> bytes:
    """The catalogue as JSON: the same bytes for the same entries."""
    return msgspec.json.encode(CodexCatalogue([_model(entry, at) for at, entry in enumerate(entries, 1)]))


def etag(body: bytes) -> str:
    """The entity tag of a body."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _model(entry: ModelEntry, priority: int) -> CodexModel:
    return CodexModel(
        slug=entry.id,
        display_name=entry.id,
        description=f"Served by Gearshift, {entry.context_window:,} tokens of context",
        priority=priority,
        context_window=entry.context_window,
        max_context_window=entry.context_window,
        supported_reasoning_levels=[EffortOption(effort, _EFFORTS[effort]) for effort in entry.efforts],
        default_reasoning_level=entry.default_effort,
        supports_reasoning_summary_parameter=bool(entry.efforts),
        truncation_policy=Truncation(min(_OUTPUT_TOKENS, entry.context_window // _OUTPUT_PART)),
        service_tiers=[TierOption(service_tier_of(gear), *_TIERS[gear]) for gear in GEARS if gear in _TIERS],
        upgrade=_offer(entry),
    )


def _offer(entry: ModelEntry) -> UpgradeOffer | None:
    upgrade = entry.upgrade
    if upgrade is None:
        return None
    retires = None if upgrade.retires_at is None else f"{datetime.fromtimestamp(upgrade.retires_at, UTC):%FT%TZ}"
    return UpgradeOffer(upgrade.model, upgrade.notice, retires)
