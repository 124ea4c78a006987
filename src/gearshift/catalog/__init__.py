"""Models and gears as plain data. Efforts, prices and lifecycle grow in this room."""

from gearshift.catalog.gears import GEARS, Gear, GearName, gear_of
from gearshift.catalog.models import ModelEntry

__all__ = ["GEARS", "Gear", "GearName", "ModelEntry", "gear_of"]
