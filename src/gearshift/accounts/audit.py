"""Checks books from the outside, with the database's own sums: every balance is the sum of its entries, every turn was
closed at most once and cost exactly its charge, and no tank gave more than it was granted.
"""

from __future__ import annotations

from sqlalchemy import Engine, case, func, select

from gearshift.accounts.tables import entries, periods, reading, turns


def audit(database: Engine, *, open_turns: bool = True) -> list[str]:
    """Everything that does not add up, in words; empty for good books.

    open_turns: whether turns may be open: not after a start and before any new turn.
    """
    wrong: list[str] = []
    total = func.coalesce(func.sum(entries.c.amount), 0)
    granted = func.coalesce(func.sum(case((entries.c.kind == "grant", entries.c.amount), else_=0)), 0)
    of_period = (
        select(periods.c.id, periods.c.balance, periods.c.granted, total.label("total"), granted.label("given"))
        .select_from(periods.outerjoin(entries, entries.c.period == periods.c.id))
        .group_by(periods.c.id, periods.c.balance, periods.c.granted)
    )
    unclosed = func.sum(
        case((entries.c.kind == "reserve", 1), (entries.c.kind.in_(("settle", "release")), -1), else_=0)
    )
    of_turn = (
        select(
            turns.c.id,
            turns.c.charge,
            turns.c.reserved,
            turns.c.closed,
            entries.c.period,
            func.sum(entries.c.amount).label("total"),
            unclosed.label("unclosed"),
        )
        .join(entries, entries.c.turn == turns.c.id)
        .group_by(turns.c.id, turns.c.charge, turns.c.reserved, turns.c.closed, entries.c.period)
    )
    booked_nowhere = select(turns.c.id).where(
        turns.c.id.not_in(select(entries.c.turn).where(entries.c.turn.is_not(None)))
    )
    with reading(database).connect() as connection:
        for row in connection.execute(of_period):
            if row.balance != row.total:
                wrong.append(f"period {row.id}: balance {row.balance}, but its entries sum to {row.total}")
            if row.granted != row.given:
                wrong.append(f"period {row.id}: granted {row.granted}, but its grants sum to {row.given}")
        for row in connection.execute(of_turn):
            expected = -row.reserved if row.closed is None else -row.charge
            if row.total != expected or row.unclosed != (row.closed is None):
                wrong.append(
                    f"turn {row.id}: {row.unclosed} reservations not closed, entries of {row.total} in period "
                    f"{row.period}, expected {expected}"
                )
            if row.charge > row.reserved:
                wrong.append(f"turn {row.id}: charged {row.charge} of {row.reserved} reserved")
            if row.closed is None and not open_turns:
                wrong.append(f"turn {row.id}: still open")
        wrong.extend(f"turn {one}: no entry at all" for one in connection.execute(booked_nowhere).scalars())
    return wrong
