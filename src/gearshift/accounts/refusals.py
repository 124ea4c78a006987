"""Why a metered turn was not admitted, in words for its user. How that looks on the wire is decided there."""

from __future__ import annotations

import time

from gearshift.accounts.books import Refusal
from gearshift.accounts.prices import MICRO
from gearshift.catalog import GearName


class BooksUnavailable(Exception):
    """The turn cannot be booked now, through no fault of its caller."""


class TankEmpty(Exception):
    """No tank that the turn may draw from can hold its worst case.

    Attributes:
        tank, window: the first of its tanks and the window that cannot hold the turn; "" where no tank takes it.
        resets_at: Unix time at which that window fills again; None when waiting would not help.
        retry_after_s: the same from now.
    """

    def __init__(self, refusal: Refusal, model: str, gear: GearName, now: float) -> None:
        self.refusal = refusal
        self.tank = self.window = ""
        self.resets_at: int | None = None
        needed = f"{_credits(refusal.needed)} credits"
        if refusal.draws:
            first = refusal.draws[0]
            window = first.blocking(refusal.needed)
            assert window is not None, "a tank that could hold the turn would have taken it"
            self.tank, self.window = first.name, window.name
            left = f"{_credits(max(0, window.balance))} of {_credits(window.credits)} credits"
            message = f"The tank {first.name!r} has {left} left in its window {window.name!r}"
            message += f", and this turn may need {needed}."
            if window.credits < refusal.needed:
                message += " It never holds that many: lower the output limit."
            elif window.ends is not None:
                self.resets_at = window.ends
                at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(window.ends))
                message += f" It refills at {at}; a lower output limit needs less."
        else:
            message = f"No tank of this account serves {model!r} in the gear {gear!r}."
        if refusal.would_serve:
            others = " or ".join(f"the gear {other!r} from the tank {tank!r}" for other, tank in refusal.would_serve)
            message += f" It would be served now in {others}."
        super().__init__(message)
        self.retry_after_s = None if self.resets_at is None else max(1.0, self.resets_at - now)


def _credits(micro: int) -> str:
    text = f"{micro / MICRO:,.2f}"
    return text.rstrip("0").rstrip(".")
