"""The rules of the ledger over a few periods and turns held in memory: pure, no clock, no I/O.

Opening a period grants its credits; a reservation takes the worst case from every window of one tank; closing a turn
gives back what was not used. What came of it is in `entries` and in the changed periods and turns; who loads and
stores them is `store`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gearshift.accounts.prices import Tokens
from gearshift.accounts.tanks import Plan, Tank
from gearshift.accounts.windows import Window
from gearshift.catalog import GearName

EntryKind = Literal["grant", "reserve", "settle", "release"]


@dataclass(slots=True)
class Period:
    """One run of one window of an account's tank; `id` is None until it is stored."""

    account: str
    tank: str
    window: str
    number: int
    starts: int
    ends: int
    granted: int = 0
    balance: int = 0
    newest: bool = True
    id: int | None = None
    changed: bool = False


@dataclass(slots=True)
class BookedTurn:
    """A turn with its reservation; open until `closed`."""

    id: str
    account: str
    tank: str
    model: str
    gear: GearName
    opened: int
    reserved: int
    periods: tuple[Period, ...]
    closed: int | None = None
    charge: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    stored: bool = False
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger; never changed, never deleted."""

    kind: EntryKind
    period: Period
    turn: str | None
    amount: int


@dataclass(frozen=True, slots=True)
class WindowState:
    """What is left in a window now, in millionths; `ends` in Unix seconds, None where it opens with its next use."""

    name: str
    credits: int
    balance: int
    ends: int | None
    minutes: int

    @property
    def used_percent(self) -> float:
        """Used or reserved, 0 to 100."""
        if self.credits <= 0:
            return 100.0
        return min(100.0, max(0.0, 100.0 * (self.credits - self.balance) / self.credits))


@dataclass(frozen=True, slots=True)
class TankState:
    """A tank's windows, in the plan's order."""

    name: str
    kind: str
    windows: tuple[WindowState, ...]

    def blocking(self, amount: int) -> WindowState | None:
        """The window that cannot hold `amount` and refills last; None when all can."""
        short = [window for window in self.windows if window.balance < amount]
        return max(short, key=lambda window: window.ends or 0) if short else None


@dataclass(frozen=True, slots=True)
class Refusal:
    """No tank could hold the turn. `draws` are the tanks it might have drawn from, `amounts` what each gear needs."""

    needed: int
    draws: tuple[TankState, ...]
    would_serve: tuple[tuple[GearName, str], ...]


@dataclass(frozen=True, slots=True)
class Granted:
    """A reservation was made in `tank`; `states` are all tanks of the account after it."""

    turn: BookedTurn
    fell_over: bool
    states: tuple[TankState, ...]

    def before(self) -> tuple[TankState, ...]:
        """The same without this turn's own reservation, most of which comes back: what a user calls used."""
        return tuple(
            replace(tank, windows=tuple(replace(one, balance=one.balance + self.turn.reserved) for one in tank.windows))
            if tank.name == self.turn.tank
            else tank
            for tank in self.states
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """What a turn may cost at most in its gear, and what it would in the others."""

    turn: str
    account: str
    plan: Plan
    model: str
    gear: GearName
    amounts: dict[GearName, int]
    repeated: bool = False
    """Whether the turn may have run before: it goes on with the charge that it had."""


class Books:
    """Newest periods of some accounts and turns that were loaded with them, at one moment."""

    def __init__(self, now: float, periods: Iterable[Period], turns: Iterable[BookedTurn]) -> None:
        self.now = now
        self.periods: list[Period] = []
        self._newest: dict[tuple[str, str, str], Period] = {}
        for period in periods:
            self._add(period)
        self.turns = {turn.id: turn for turn in turns}
        self.entries: list[Entry] = []

    def reserve(self, demand: Demand) -> Granted | Refusal:
        """Take the worst case from the first tank that can hold it. A turn that is open already stays so; one that
        was closed is opened again where it was, with its charge."""
        draws = demand.plan.draws(demand.model, demand.gear)
        if (turn := self.turns.get(demand.turn)) is None:
            amount = demand.amounts[demand.gear]
            tank = self._holding(demand.account, draws, amount)
            if tank is None:
                return self._refusal(demand, draws)
            taken = tuple(self._open(demand.account, tank, window) for window in tank.windows)
            turn = BookedTurn(
                demand.turn, demand.account, tank.name, demand.model, demand.gear, int(self.now), amount, taken
            )
            self.turns[turn.id] = turn
            for period in taken:
                self._enter("reserve", period, turn.id, -amount)
        elif turn.closed is not None and not self._reopen(turn, demand.amounts[demand.gear]):
            return self._refusal(demand, draws)
        # Whoever asks for it now owns it: a turn of a server that is gone may still be open.
        turn.changed = True
        fell_over = bool(draws) and turn.tank != draws[0].name
        return Granted(turn, fell_over, self.states(demand.account, demand.plan))

    def record(self, turn_id: str, gear: GearName, charge: int, tokens: Tokens) -> None:
        """Note how far an open turn has come. A closed or unknown one stays as it is."""
        turn = self.turns.get(turn_id)
        if turn is None or turn.closed is not None:
            return
        # What a turn that runs again gave out before stays charged until it has come further.
        if charge >= turn.charge:
            # Never more than was reserved: what the tank did not hold cannot be drawn from it.
            turn.charge = min(charge, turn.reserved)
            turn.gear, turn.tokens, turn.changed = gear, tokens, True

    def close(self, turn_id: str) -> None:
        """Charge what was recorded last and give back the rest, once."""
        turn = self.turns.get(turn_id)
        if turn is None or turn.closed is not None:
            return
        turn.closed, turn.changed = int(self.now), True
        kind: EntryKind = "settle" if turn.charge else "release"
        for period in turn.periods:
            self._enter(kind, period, turn.id, turn.reserved - turn.charge)

    def states(self, account: str, plan: Plan) -> tuple[TankState, ...]:
        """All tanks of an account as they stand."""
        return tuple(self._state(account, tank) for tank in plan.tanks)

    def _state(self, account: str, tank: Tank) -> TankState:
        windows: list[WindowState] = []
        for window in tank.windows:
            period = self._running(account, tank, window)
            left = window.credits if period is None else period.balance + window.credits - period.granted
            ends, minutes = (period.ends, (period.ends - period.starts) // 60) if period else (None, None)
            if minutes is None:
                minutes = window.minutes(self.now)
            windows.append(WindowState(window.name, window.credits, left, ends, minutes))
        return TankState(tank.name, tank.kind, tuple(windows))

    def _holding(self, account: str, tanks: Sequence[Tank], amount: int) -> Tank | None:
        for tank in tanks:
            if self._state(account, tank).blocking(amount) is None:
                return tank
        return None

    def _refusal(self, demand: Demand, draws: Sequence[Tank]) -> Refusal:
        would: list[tuple[GearName, str]] = []
        for gear, amount in demand.amounts.items():
            tank = self._holding(demand.account, demand.plan.draws(demand.model, gear), amount)
            if tank is not None:
                would.append((gear, tank.name))
        states = tuple(self._state(demand.account, tank) for tank in draws)
        return Refusal(demand.amounts[demand.gear], states, tuple(would))

    def _running(self, account: str, tank: Tank, window: Window) -> Period | None:
        """The window's newest period while it lasts. One that starts later than now is still the newest: a clock
        that jumped back must not fill a tank again."""
        period = self._newest.get((account, tank.name, window.name))
        return period if period is not None and self.now < period.ends else None

    def _open(self, account: str, tank: Tank, window: Window) -> Period:
        """The running period, opened where there is none, with the credits that the plan gives it today."""
        period = self._running(account, tank, window)
        if period is None:
            last = self._newest.get((account, tank.name, window.name))
            number = 1
            if last is not None:
                last.newest, last.changed = False, True
                number = last.number + 1
            starts, ends = window.period(self.now)
            period = Period(account, tank.name, window.name, number, starts, ends)
            self._add(period)
        if change := window.credits - period.granted:
            period.granted = window.credits
            self._enter("grant", period, None, change)
        return period

    def _reopen(self, turn: BookedTurn, amount: int) -> bool:
        reserved = max(amount, turn.charge)
        if any(period.balance < reserved - turn.charge for period in turn.periods):
            return False
        turn.reserved, turn.closed, turn.changed = reserved, None, True
        for period in turn.periods:
            self._enter("reserve", period, turn.id, turn.charge - reserved)
        return True

    def _add(self, period: Period) -> None:
        self.periods.append(period)
        if period.newest:
            self._newest[period.account, period.tank, period.window] = period

    def _enter(self, kind: EntryKind, period: Period, turn: str | None, amount: int) -> None:
        period.balance += amount
        period.changed = True
        self.entries.append(Entry(kind, period, turn, amount))
