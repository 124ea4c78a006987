"""Models and gears as plain data. Efforts, prices and lifecycle grow in this room."""

from gearshift.catalog.gears import GEARS, SERVICE_TIERS, Gear, GearName, gear_of, service_tier_of
from gearshift.catalog.models import ModelEntry

__all__ = ["GEARS", "SERVICE_TIERS", "Gear", "GearName", "ModelEntry", "gear_of", "service_tier_of"]
