"""The catalogue for Codex: every field that it requires, gears, efforts and where a model's users are sent."""

from __future__ import annotations

import json
from typing import Any

from gearshift.catalog import ModelEntry, Upgrade, gear_of
from gearshift.wire.codex import catalogue, etag

PLAIN = ModelEntry("sol", 8192, chat=True, created=0, owner="tests")
FULL = ModelEntry(
    "old-sol",
    131_072,
    chat=True,
    created=0,
    owner="tests",
    efforts=("low", "high"),
    default_effort="low",
    upgrade=Upgrade("sol", "# Move to **Sol**", 1_798_675_200),
)
# A missing one makes Codex 0.171 drop the whole catalogue.
REQUIRED = {
    "slug",
    "display_name",
    "supported_reasoning_levels",
    "shell_type",
    "visibility",
    "supported_in_api",
    "priority",
    "support_verbosity",
    "truncation_policy",
    "experimental_supported_tools",
    "base_instructions",
}


def entries(*models: ModelEntry) -> list[dict[str, Any]]:
    return json.loads(catalogue(models))["models"]


def test_nothing_that_is_required_is_missing() -> None:
    for entry in entries(PLAIN, FULL):
        assert entry.keys() >= REQUIRED


def test_gears_are_tiers_that_come_back_as_such() -> None:
    (entry,) = entries(PLAIN)
    assert [(tier["id"], tier["name"].lower()) for tier in entry["service_tiers"]] == [
        ("priority", "fast"),
        ("ultrafast", "ultrafast"),
    ]
    assert [gear_of(tier["id"]) for tier in entry["service_tiers"]] == ["priority", "ultrafast"]
    assert all(tier["description"] for tier in entry["service_tiers"])


def test_windows_efforts_and_successors() -> None:
    plain, full = entries(PLAIN, FULL)
    assert (plain["context_window"], plain["truncation_policy"]) == (8192, {"limit": 2048, "mode": "tokens"})
    assert (plain["supported_reasoning_levels"], plain["default_reasoning_level"]) == ([], None)
    assert plain["supports_reasoning_summary_parameter"] is False
    assert plain["upgrade"] is None
    assert full["truncation_policy"]["limit"] == 10_000
    assert [level["effort"] for level in full["supported_reasoning_levels"]] == ["low", "high"]
    assert full["default_reasoning_level"] == "low"
    assert full["upgrade"] == {
        "model": "sol",
        "migration_markdown": "# Move to **Sol**",
        "retirement_at": "2026-12-31T00:00:00Z",
    }
    assert plain["priority"] < full["priority"]


def test_a_successor_without_a_date() -> None:
    (entry,) = entries(ModelEntry("a", 1, chat=True, created=0, owner="t", upgrade=Upgrade("b", "Use b.")))
    assert entry["upgrade"]["retirement_at"] is None


def test_the_tag_changes_with_the_entries_only() -> None:
    assert etag(catalogue([PLAIN])) == etag(catalogue([PLAIN]))
    assert etag(catalogue([PLAIN])) != etag(catalogue([FULL]))
