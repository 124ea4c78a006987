"""Books between memory and database: loads the periods and turns that a batch touches, stores what came of it.

Everything happens inside the caller's transaction. On PostgreSQL the rows are locked in one order; on SQLite the
transaction holds the whole database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from sqlalchemy import and_, bindparam, insert, or_, select, update
from sqlalchemy.engine import Connection, Row

from gearshift.accounts.books import BookedTurn, Books, Period
from gearshift.accounts.prices import Tokens
from gearshift.accounts.tables import entries, periods, turns

_insert_period = insert(periods).returning(periods.c.id)
_update_period = (
    update(periods)
    .where(periods.c.id == bindparam("key"))
    .values(balance=bindparam("b"), granted=bindparam("g"), newest=bindparam("n"))
)
_update_turn = (
    update(turns)
    .where(turns.c.id == bindparam("key"))
    .values(
        gear=bindparam("gr"),
        charge=bindparam("ch"),
        prompt_tokens=bindparam("pt"),
        cached_tokens=bindparam("ct"),
        output_tokens=bindparam("ot"),
        closed=bindparam("cl"),
        reserved=bindparam("rs"),
        owner=bindparam("ow"),
    )
)
# One row for each reservation of a turn in a period: a turn that was opened again has several.
_turn_rows = (
    select(turns, entries.c.period)
    .join(entries, and_(entries.c.turn == turns.c.id, entries.c.kind == "reserve"))
    .where(turns.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(turns.c.id)
    .with_for_update(of=turns)
)
_period_rows = (
    select(periods)
    .where(
        or_(
            and_(periods.c.account.in_(bindparam("accounts", expanding=True)), periods.c.newest.is_(True)),
            periods.c.id.in_(bindparam("ids", expanding=True)),
        )
    )
    .order_by(periods.c.id)
    .with_for_update()
)


def load(connection: Connection, now: float, accounts: Collection[str], turn_ids: Collection[str]) -> Books:
    """The books of these accounts and turns, locked until the transaction ends."""
    rows: dict[str, Row[tuple[object, ...]]] = {}
    used: dict[str, list[int]] = defaultdict(list)
    if turn_ids:
        for row in connection.execute(_turn_rows, {"ids": sorted(turn_ids)}):
            rows[row.id] = row
            if row.period not in used[row.id]:
                used[row.id].append(row.period)
    ids = {one for of_turn in used.values() for one in of_turn}
    found = connection.execute(_period_rows, {"accounts": sorted(accounts), "ids": sorted(ids)})
    by_id = {row.id: _period(row) for row in found}
    return Books(now, by_id.values(), (_turn(row, [by_id[one] for one in used[id]]) for id, row in rows.items()))


def save(connection: Connection, books: Books, owner: str) -> None:
    """Store what changed since `load`."""
    for period in books.periods:
        # The newest mark of the one before goes first; a fresh period has all its figures at once.
        if period.id is None:
            period.id = connection.execute(_insert_period, _period_values(period)).scalar_one()
            period.changed = False
    if changed := [period for period in books.periods if period.changed]:
        connection.execute(
            _update_period,
            [{"key": one.id, "b": one.balance, "g": one.granted, "n": one.newest} for one in changed],
        )
    if fresh := [turn for turn in books.turns.values() if not turn.stored]:
        connection.execute(insert(turns), [_turn_values(turn, owner) for turn in fresh])
    if changed_turns := [turn for turn in books.turns.values() if turn.stored and turn.changed]:
        connection.execute(_update_turn, [_turn_changes(turn, owner) for turn in changed_turns])
    if books.entries:
        connection.execute(insert(entries), _entry_values(books))


def _entry_values(books: Books) -> list[dict[str, object]]:
    at = int(books.now)
    return [
        {"at": at, "kind": one.kind, "period": one.period.id, "turn": one.turn, "amount": one.amount}
        for one in books.entries
    ]


def _period(row: Row[tuple[object, ...]]) -> Period:
    return Period(
        account=row.account,
        tank=row.tank,
        window=row.span,
        number=row.number,
        starts=row.starts,
        ends=row.ends,
        granted=row.granted,
        balance=row.balance,
        newest=bool(row.newest),
        id=row.id,
    )


def _period_values(period: Period) -> dict[str, object]:
    return {
        "account": period.account,
        "tank": period.tank,
        "span": period.window,
        "number": period.number,
        "newest": period.newest,
        "starts": period.starts,
        "ends": period.ends,
        "granted": period.granted,
        "balance": period.balance,
    }


def _turn(row: Row[tuple[object, ...]], of: Iterable[Period]) -> BookedTurn:
    return BookedTurn(
        id=row.id,
        account=row.account,
        tank=row.tank,
        model=row.model,
        gear=row.gear,
        opened=row.opened,
        reserved=row.reserved,
        periods=tuple(of),
        closed=row.closed,
        charge=row.charge,
        tokens=Tokens(row.prompt_tokens, row.cached_tokens, row.output_tokens),
        stored=True,
    )


def _turn_values(turn: BookedTurn, owner: str) -> dict[str, object]:
    return {
        "id": turn.id,
        "account": turn.account,
        "tank": turn.tank,
        "model": turn.model,
        "gear": turn.gear,
        "owner": owner,
        "opened": turn.opened,
        "closed": turn.closed,
        "reserved": turn.reserved,
        "charge": turn.charge,
        "prompt_tokens": turn.tokens.prompt,
        "cached_tokens": turn.tokens.cached,
        "output_tokens": turn.tokens.output,
    }


def _turn_changes(turn: BookedTurn, owner: str) -> dict[str, object]:
    return {
        "key": turn.id,
        "gr": turn.gear,
        "ch": turn.charge,
        "pt": turn.tokens.prompt,
        "ct": turn.tokens.cached,
        "ot": turn.tokens.output,
        "cl": turn.closed,
        "rs": turn.reserved,
        "ow": owner,
    }
