"""What clients are told of tanks: headers of every metered answer, and the answer when no tank can hold a turn.

`x-codex-*` is the family that Codex reads; it keeps the last family it receives, so only the tank that was drawn has
one. The plain `x-ratelimit-*` headers count credits of the same tank's scarcest window, `x-gearshift-tank*` name all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gearshift.accounts.books import Granted, TankState, WindowState
from gearshift.accounts.prices import MICRO
from gearshift.accounts.refusals import TankEmpty

_FAMILY_PLACES = ("primary", "secondary")


def limit_headers(granted: Granted, now: float) -> dict[str, str]:
    """Headers of an answer whose turn was admitted. A turn's own reservation does not count as used."""
    states = granted.before()
    drawn = next(tank for tank in states if tank.name == granted.turn.tank)
    return {
        **_family("codex", drawn),
        **_plain(drawn, now),
        "x-gearshift-tank": drawn.name + ("; fell-over=true" if granted.fell_over else ""),
        **{f"x-gearshift-tank-{tank.name}": _line(tank) for tank in states},
    }


def refusal_headers(error: TankEmpty) -> dict[str, str]:
    """Headers of the 429 of a turn that no tank can hold. Trying again before it refills is of no use."""
    headers = {"x-should-retry": "false"}
    if error.refusal.draws:
        tank = error.refusal.draws[0]
        family = "codex-" + re.sub("[^a-z0-9]", "-", tank.name)
        headers |= {**_family(family, tank), "x-codex-active-limit": family.replace("-", "_")}
    return headers


def _family(family: str, tank: TankState) -> dict[str, str]:
    headers = {f"x-{family}-limit-name": tank.name}
    for place, window in zip(_FAMILY_PLACES, tank.windows, strict=False):
        headers[f"x-{family}-{place}-used-percent"] = f"{window.used_percent:.2f}"
        headers[f"x-{family}-{place}-window-minutes"] = str(window.minutes)
        if window.ends is not None:
            headers[f"x-{family}-{place}-reset-at"] = str(window.ends)
    return headers


def _plain(tank: TankState, now: float) -> dict[str, str]:
    window = _scarcest(tank.windows)
    headers = {
        "x-ratelimit-limit-credits": _credits(window.credits),
        "x-ratelimit-remaining-credits": _credits(max(0, window.balance)),
    }
    if window.ends is not None:
        headers["x-ratelimit-reset-credits"] = f"{max(0, int(window.ends - now))}s"
    return headers


def _line(tank: TankState) -> str:
    return ", ".join(
        f"{window.name}; used-percent={window.used_percent:.2f}" + (f"; reset-at={window.ends}" if window.ends else "")
        for window in tank.windows
    )


def _scarcest(windows: Sequence[WindowState]) -> WindowState:
    return max(windows, key=lambda window: window.used_percent)


def _credits(micro: int) -> str:
    return f"{micro / MICRO:.6f}".rstrip("0").rstrip(".")
