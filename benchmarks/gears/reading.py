"""Reading the slices: which values belong to a kind, a gear and a measure, and how two plans are paired.

Slices of one turn and one round are a pair wherever they were measured.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from benchmarks.engine.samples import Slice, Spread, quantile, spread
from benchmarks.gears.turns import EDITS, CodingTurn


class Readings:
    """The slices of one model that count.

    Args:
        slices: already without the slow ones.
        turns: all turns in order; a slice names one by its place.
    """

    def __init__(self, slices: Sequence[Slice], turns: Sequence[CodingTurn]) -> None:
        self.slices = slices
        self._turns = turns

    def kind_of(self, each: Slice) -> str:
        """The kind of a slice's turn."""
        return self._turns[each.turn].kind

    def of(self, plan: str, arm: str, kinds: Collection[str] | None = None) -> list[Slice]:
        """The slices of a plan and an arm."""
        return [
            each
            for each in self.slices
            if each.plan == plan and each.arm == arm and (kinds is None or self.kind_of(each) in kinds)
        ]

    def values(self, plan: str, arm: str, measure: str, kinds: Collection[str] | None = None) -> list[float]:
        """All values of a measure."""
        return [each.values[measure] for each in self.of(plan, arm, kinds) if measure in each.values]

    def spread(self, plan: str, arm: str, measure: str, kinds: Collection[str] | None = None) -> Spread | None:
        """Median and quartiles of a measure."""
        return spread(self.values(plan, arm, measure, kinds))

    def pairs(
        self, one: tuple[str, str], other: tuple[str, str], kinds: Collection[str] | None = None
    ) -> list[tuple[Slice, Slice]]:
        """Slices of two (plan, arm) that have turn and round in common."""
        places = {(each.round, each.turn): each for each in self.of(*other, kinds)}
        return [
            (each, places[each.round, each.turn]) for each in self.of(*one, kinds) if (each.round, each.turn) in places
        ]

    def ratios(
        self, one: tuple[str, str], other: tuple[str, str], measure: str, kinds: Collection[str] | None = None
    ) -> list[float]:
        """measure(one) / measure(other) of all pairs."""
        return [
            a.values[measure] / b.values[measure]
            for a, b in self.pairs(one, other, kinds)
            if measure in a.values and b.values.get(measure)
        ]


def edits(kinds: Collection[str]) -> list[str]:
    """The edit-like ones of some kinds."""
    return [kind for kind in EDITS if kind in kinds]


def low(values: Sequence[float], fraction: float = 0.05) -> float | None:
    """A low quantile; None without values."""
    return quantile(values, fraction) if values else None
