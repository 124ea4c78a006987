"""Markdown tables and the way numbers are written in them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.engine.samples import SLOW_FACTOR, Slice, Spread, slow_limit

NOTHING = "–"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def pretty(found: Spread | None, factor: float, digits: int) -> str:
    """`median (low–high)`, each times `factor`."""
    if found is None:
        return NOTHING
    median, low, high = (f"{value * factor:,.{digits}f}" for value in (found.median, found.low, found.high))
    return f"{median} ({low}–{high})"


def verdict(met: bool) -> str:
    """Whether a bar was met; a miss stands out."""
    return "yes" if met else "**no**"


def dropped_line(slices: Sequence[Slice], counted: Sequence[Slice]) -> str:
    """How many slices were left out, and by which rule."""
    if not slices:
        return "Nothing was measured."
    dropped = len(slices) - len(counted)
    told = (
        f"{dropped} of {len(slices)} slices left out (probe slower than {slow_limit(slices) * 1000:.1f} ms, "
        f"{SLOW_FACTOR} times the best quartile)."
    )
    if 2 * dropped > len(slices):
        told += " **That is more than half: the machine was too busy for this run to count.**"
    return told
