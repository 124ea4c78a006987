"""Models and gears as plain data. Efforts, prices and lifecycle grow in this room."""

from gearshift.catalog.gears import GEARS, SERVICE_TIERS, Gear, GearName, gear_of, service_tier_of
from gearshift.catalog.models import EffortName, ModelEntry, Upgrade

__all__ = [
    "GEARS",
    "SERVICE_TIERS",
    "EffortName",
    "Gear",
    "GearName",
    "ModelEntry",
    "Upgrade",
    "gear_of",
    "service_tier_of",
]
