"""What tokens cost: credits per 1,000 tokens of a model, times the gear's multiple, by the price in force on a day.

All arithmetic is in whole millionths of a credit, rounded up once per turn, so that books add up to the last digit.
Files are read in `plans`; who pays is in `ledger`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

from gearshift.catalog import GEARS, GearName

MICRO = 1_000_000
"""The books' unit: a millionth of a credit."""


class BadPrice(ValueError):
    """A price that is missing, doubled or impossible; the message names the model and says what to do."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one turn; `cached` is part of `prompt`."""

    prompt: int = 0
    cached: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs from a day on.

    Attributes:
        since: the first day, at midnight UTC.
        input, cached_input, output: credits per 1,000 tokens in the standard gear.
    """

    model: str
    since: date
    input: Decimal
    cached_input: Decimal
    output: Decimal

    def __post_init__(self) -> None:
        amounts = (self.input, self.cached_input, self.output)
        if not all(amount.is_finite() and 0 <= amount <= MICRO for amount in amounts):
            raise BadPrice(f"The price of {self.model!r} must be 0 to {MICRO:,} credits per 1,000 tokens.")
        if self.cached_input > self.input:
            # A reservation does not know what the cache will hold; it must stay the worst case.
            raise BadPrice(f"Cached input of {self.model!r} costs more than input; make it the same or less.")

    def charge(self, tokens: Tokens, gear: GearName) -> int:
        """Millionths of a credit for these tokens."""
        fresh = tokens.prompt - tokens.cached
        credits = fresh * self.input + tokens.cached * self.cached_input + tokens.output * self.output
        return math.ceil(credits * Decimal(str(GEARS[gear].price)) * MICRO / 1000)


class PriceList:
    """Every price that was, is and will be."""

    def __init__(self, prices: Iterable[Price]) -> None:
        self._prices: dict[str, list[Price]] = {}
        for price in sorted(prices, key=lambda price: price.since):
            of_model = self._prices.setdefault(price.model, [])
            if of_model and of_model[-1].since == price.since:
                raise BadPrice(f"The model {price.model!r} has two prices from {price.since} on; keep one.")
            of_model.append(price)

    def at(self, model: str, when: float) -> Price:
        """The price in force at a Unix time. Raises BadPrice where there is none."""
        day = datetime.fromtimestamp(when, UTC).date()
        for price in reversed(self._prices.get(model, [])):
            if price.since <= day:
                return price
        raise BadPrice(f"The model {model!r} has no price on {day}; add a [[price]] with its name to the plans file.")

    def require(self, models: Collection[str], when: float) -> None:
        """Raises BadPrice unless each of these models has a price now: a gap must stop the server, not a user."""
        for model in models:
            self.at(model, when)
