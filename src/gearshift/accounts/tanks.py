"""Plans and their tanks: which tanks a turn may draw from, and in which order. Plain data and one rule; where it is
written down is in `plans`, what is left in a tank is in `books`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gearshift.accounts.windows import Window
from gearshift.catalog import GearName

TankKind = Literal["main", "separate", "overflow"]


@dataclass(frozen=True, slots=True)
class Tank:
    """One quota pool.

    Attributes:
        kind: `main`; `separate` (what it names draws here and nowhere else); `overflow` (drawn when those before
            it cannot hold the turn).
        windows: all of them must hold a turn.
        models, gears: what may draw here; empty means all.
    """

    name: str
    kind: TankKind
    windows: tuple[Window, ...]
    models: frozenset[str] = frozenset()
    gears: frozenset[GearName] = frozenset()

    def serves(self, model: str, gear: GearName) -> bool:
        """Whether a turn of this model and gear may draw here."""
        return (not self.models or model in self.models) and (not self.gears or gear in self.gears)


@dataclass(frozen=True, slots=True)
class Plan:
    """What an account may draw: tanks in the order in which they are drawn."""

    name: str
    tanks: tuple[Tank, ...]

    def draws(self, model: str, gear: GearName) -> Sequence[Tank]:
        """Tanks for such a turn, first to last. What a separate tank names never reaches the others."""
        able = [tank for tank in self.tanks if tank.serves(model, gear)]
        separate = [tank for tank in able if tank.kind == "separate"]
        return separate or able
