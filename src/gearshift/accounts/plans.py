"""The plans file (TOML): what models cost and which tanks a plan gives.

[[price]]
model = "smollm2-135m-instruct"
since = 2026-01-01            # optional: a later price takes over on its day, midnight UTC
input = 0.1                   # credits per 1,000 tokens in the standard gear
cached_input = 0.01
output = 0.4

[[plan.team]]                 # tanks in the order in which they are drawn
name = "main"
windows = [{ name = "5h", length = "5h", credits = 500 }, { name = "week", every = "week", credits = 5000 }]

[[plan.team]]
name = "reserve"
kind = "overflow"             # main (default), separate, overflow
models = ["smollm2-135m-instruct"]
gears = ["standard"]
windows = [{ name = "7d", length = "7d", credits = 100 }]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gearshift.accounts.prices import MICRO, BadPrice, Price, PriceList
from gearshift.accounts.tanks import Plan, Tank, TankKind
from gearshift.accounts.windows import Calendar, Window
from gearshift.catalog import GearName

_UNIT_S = {"m": 60, "h": 3600, "d": 86400}
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
_Length = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,4}[mhd]$")]


class BadPlans(Exception):
    """The plans file cannot be used; the message names the file, the place and what was expected."""


class _Price(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    input: Decimal
    cached_input: Decimal
    output: Decimal
    since: date = date(1970, 1, 1)


class _Window(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    credits: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    length: _Length | None = None
    every: Calendar | None = None


class _Tank(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    windows: Annotated[list[_Window], Meta(min_length=1, max_length=8)]
    kind: TankKind = "main"
    models: list[str] = []
    gears: list[GearName] = []


class _File(msgspec.Struct, forbid_unknown_fields=True):
    price: list[_Price] = []
    plan: dict[_Name, Annotated[list[_Tank], Meta(min_length=1)]] = {}


@dataclass(frozen=True, slots=True)
class Plans:
    """What a plans file says."""

    prices: PriceList
    plans: Mapping[str, Plan]


NO_PLANS = Plans(PriceList(()), {})


def read_plans(path: Path) -> Plans:
    """The plans of a file. Raises BadPlans."""
    try:
        text: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError) as error:
        raise BadPlans(f"The plans file {path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise BadPlans(f"The plans file {path} is no TOML: {error}.") from None
    try:
        found = msgspec.convert(text, _File, strict=False)
        prices = PriceList(Price(one.model, one.since, one.input, one.cached_input, one.output) for one in found.price)
        return Plans(prices, {name: _plan(name, tanks) for name, tanks in found.plan.items()})
    except (ValueError, BadPrice) as error:
        raise BadPlans(f"The plans file {path} cannot be used: {error}") from None


def _plan(name: str, tanks: list[_Tank]) -> Plan:
    names = [tank.name for tank in tanks]
    if len(set(names)) < len(names):
        raise ValueError(f"The plan {name!r} names a tank twice; its tanks are {', '.join(names)}.")
    if sum(tank.kind == "main" for tank in tanks) > 1:
        raise ValueError(f"The plan {name!r} has several main tanks; make all but one 'overflow' or 'separate'.")
    return Plan(name, tuple(_tank(name, tank) for tank in tanks))


def _tank(plan: str, tank: _Tank) -> Tank:
    place = f"The tank {tank.name!r} of the plan {plan!r}"
    if tank.kind == "separate" and not tank.models and not tank.gears:
        raise ValueError(f"{place} is separate and must name its models or gears: what they are never draws elsewhere.")
    names = [window.name for window in tank.windows]
    if len(set(names)) < len(names):
        raise ValueError(f"{place} names a window twice.")
    return Tank(
        tank.name,
        tank.kind,
        tuple(_window(window) for window in tank.windows),
        frozenset(tank.models),
        frozenset(tank.gears),
    )


def _window(window: _Window) -> Window:
    length_s = None
    if window.length is not None:
        amount, unit = re.findall(r"\d+|[mhd]", window.length)
        length_s = int(amount) * _UNIT_S[unit]
    return Window(window.name, window.credits * MICRO, length_s, window.every)
