"""The rules of the books, with a clock in the test's hand: sums hold, no tank is overdrawn, no clock fills one."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gearshift.accounts.books import Books, Granted, Period, Refusal, TankState
from gearshift.accounts.prices import MICRO, Tokens
from gearshift.accounts.tanks import Plan, Tank
from gearshift.accounts.windows import Window
from gearshift.catalog import GearName
from tests.accounts.plans_for_tests import DAY, HOUR, demand, hours, main, plan_of

NOW = 1_800_000_000.0
PLAN = plan_of(main(hours(100), hours(300, 168)))


def granted(
    books: Books, turn: str, plan: Plan, credits: float, *, account: str = "ann", gear: GearName = "standard"
) -> Granted:
    answer = books.reserve(demand(turn, plan, credits, account=account, gear=gear))
    assert isinstance(answer, Granted)
    return answer


def refused(
    books: Books, turn: str, plan: Plan, credits: float, *, account: str = "ann", gear: GearName = "standard"
) -> Refusal:
    answer = books.reserve(demand(turn, plan, credits, account=account, gear=gear))
    assert isinstance(answer, Refusal)
    return answer


def left(states: tuple[TankState, ...]) -> list[list[float]]:
    return [[window.balance / MICRO for window in tank.windows] for tank in states]


def spend(books: Books, turn: str, plan: Plan, credits: float) -> None:
    granted(books, turn, plan, credits)
    books.record(turn, "standard", int(credits * MICRO), Tokens())
    books.close(turn)


def test_a_turn_from_reservation_to_settlement() -> None:
    books = Books(NOW, [], [])
    assert left(granted(books, "t", PLAN, 30).states) == [[70, 270]]
    books.record("t", "standard", 12 * MICRO, Tokens(10, 2, 3))
    books.close("t")
    assert left(books.states("ann", PLAN)) == [[88, 288]]
    assert [entry.kind for entry in books.entries] == ["grant", "grant", "reserve", "reserve", "settle", "settle"]
    assert books.turns["t"].tokens == Tokens(10, 2, 3)


def test_what_happens_after_the_end_changes_nothing() -> None:
    books = Books(NOW, [], [])
    granted(books, "t", PLAN, 30)
    books.close("t")
    before = list(books.entries)
    books.record("t", "standard", MICRO, Tokens(1, 0, 1))
    books.close("t")
    books.close("unknown")
    assert books.entries == before
    assert before[-1].kind == "release"
    assert books.turns["t"].charge == 0


def test_reserving_the_same_turn_twice_is_one_reservation() -> None:
    books = Books(NOW, [], [])
    first = granted(books, "t", PLAN, 30)
    assert granted(books, "t", PLAN, 30) == first


def test_a_charge_never_exceeds_its_reservation() -> None:
    books = Books(NOW, [], [])
    granted(books, "t", PLAN, 30)
    books.record("t", "standard", 31 * MICRO, Tokens())
    books.close("t")
    assert left(books.states("ann", PLAN)) == [[70, 270]]


def test_a_refusal_opens_nothing_and_says_what_would_serve() -> None:
    fast = Tank("fast", "separate", (hours(50),), gears=frozenset({"ultrafast"}))
    plan = plan_of(main(hours(100)), fast)
    books = Books(NOW, [], [])
    refusal = refused(books, "t", plan, 60, gear="ultrafast")
    assert not books.entries and not books.periods and not books.turns
    assert [tank.name for tank in refusal.draws] == ["fast"]
    assert refusal.would_serve == (("standard", "main"), ("priority", "main"))


def test_every_window_must_hold_the_turn() -> None:
    books = Books(NOW, [], [])
    for turn in range(3):
        spend(books, str(turn), PLAN, 100)
        books.now += 5 * HOUR
    refusal = refused(books, "t", PLAN, 1)
    blocking = refusal.draws[0].blocking(MICRO)
    assert blocking is not None
    assert (blocking.name, blocking.ends) == ("168h", int(NOW) + 7 * DAY)


def test_a_separate_tank_takes_what_it_names_and_nothing_else() -> None:
    own = Tank("own", "separate", (hours(10),), gears=frozenset({"ultrafast"}))
    plan = plan_of(main(hours(100)), own)
    books = Books(NOW, [], [])
    assert granted(books, "a", plan, 10, gear="ultrafast").turn.tank == "own"
    refused(books, "b", plan, 1, gear="ultrafast")
    assert granted(books, "c", plan, 100).turn.tank == "main"
    refused(books, "d", plan, 1)
    assert left(books.states("ann", plan)) == [[0], [0]]


def test_an_overflow_tank_is_drawn_when_those_before_cannot_hold_the_turn() -> None:
    plan = plan_of(main(hours(10)), Tank("spare", "overflow", (hours(5),), models=frozenset({"scripted"})))
    books = Books(NOW, [], [])
    first = granted(books, "a", plan, 8)
    assert (first.turn.tank, first.fell_over) == ("main", False)
    second = granted(books, "b", plan, 4)
    assert (second.turn.tank, second.fell_over) == ("spare", True)
    assert granted(books, "c", plan, 2).turn.tank == "main"
    assert left(books.states("ann", plan)) == [[0], [1]]


def test_a_model_that_no_tank_serves() -> None:
    plan = plan_of(Tank("main", "main", (hours(10),), models=frozenset({"another"})))
    assert refused(Books(NOW, [], []), "t", plan, 0).draws == ()


def test_accounts_do_not_share_tanks() -> None:
    books = Books(NOW, [], [])
    granted(books, "a", PLAN, 100)
    refused(books, "b", PLAN, 1)
    granted(books, "c", PLAN, 100, account="bob")


def test_a_window_fills_again_at_its_end_and_not_before() -> None:
    plan = plan_of(main(hours(10)))
    books = Books(NOW, [], [])
    spend(books, "a", plan, 10)
    books.now = NOW + 5 * HOUR - 1
    refused(books, "b", plan, 1)
    books.now = NOW + 5 * HOUR
    granted(books, "b", plan, 10)


def test_a_clock_that_jumps_back_fills_nothing() -> None:
    for window in (hours(10), Window("day", 10 * MICRO, every="day")):
        plan = plan_of(main(window))
        books = Books(NOW, [], [])
        spend(books, "a", plan, 10)
        books.now = NOW - HOUR
        refused(books, "b", plan, 1)
        books.now = NOW - 3 * DAY
        refused(books, "b", plan, 1)
        assert len(books.periods) == 1


def test_a_turn_that_outlives_its_window_settles_where_it_was_reserved() -> None:
    plan = plan_of(main(hours(10)))
    books = Books(NOW, [], [])
    granted(books, "long", plan, 10)
    books.now += 6 * HOUR
    granted(books, "next", plan, 4)
    books.record("long", "standard", 3 * MICRO, Tokens())
    books.close("long")
    assert [period.balance for period in books.periods] == [7 * MICRO, 6 * MICRO]


def test_a_plan_cut_below_what_is_used_serves_again_only_after_the_window() -> None:
    books = Books(NOW, [], [])
    spend(books, "a", plan_of(main(hours(10))), 8)
    cut = plan_of(main(hours(5)))
    assert left(refused(books, "b", cut, 1).draws) == [[-3]]
    books.now += 5 * HOUR
    granted(books, "b", cut, 5)
    raised = plan_of(main(hours(6)))
    granted(books, "c", raised, 1)
    assert [entry.amount for entry in books.entries if entry.kind == "grant"] == [10 * MICRO, 5 * MICRO, MICRO]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "record", "close", "wait", "jump back", "edit"]),
        st.integers(0, 7),
        st.integers(0, 40),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_whatever_happens_the_sums_hold_and_no_tank_is_overdrawn(steps: list[tuple[str, int, int]]) -> None:
    plan = plan_of(
        main(hours(100), hours(150, 24)), Tank("spare", "overflow", (Window("day", 50 * MICRO, every="day"),))
    )
    books = Books(NOW, [], [])
    edited = False
    for number, (what, turn, amount) in enumerate(steps):
        match what:
            case "reserve":
                books.reserve(demand(f"{number}", plan, amount))
            case "record":
                books.record(f"{turn}", "standard", amount * MICRO, Tokens(output=amount))
            case "close":
                books.close(f"{turn}")
            case "wait":
                books.now += amount * HOUR / 4
            case "jump back":
                books.now -= amount * HOUR / 4
            case _:
                plan, edited = plan_of(main(hours(amount), hours(amount, 24))), True
        check(books, overdrawn=edited)
    for turn in list(books.turns):
        books.close(turn)
    check(books, overdrawn=edited)
    for period in books.periods:
        drawn = sum(turn.charge for turn in books.turns.values() if period in turn.periods)
        assert period.balance == period.granted - drawn


def check(books: Books, *, overdrawn: bool) -> None:
    newest: set[tuple[str, str]] = set()
    for period in books.periods:
        assert period.balance == sum(entry.amount for entry in books.entries if entry.period is period)
        # A plan that was cut leaves a tank below zero; nothing else does.
        assert overdrawn or 0 <= period.balance <= period.granted
        if period.newest:
            assert (period.tank, period.window) not in newest
            newest.add((period.tank, period.window))


def test_periods_of_a_window_never_overlap_whatever_the_clock_does() -> None:
    books = Books(NOW, [], [])
    plan = plan_of(main(hours(10)))
    for step, jump in enumerate((0, 3, 3, -5, 2, 9, -1, 30, -20, 40)):
        books.now += jump * HOUR
        granted(books, str(step), plan, 1)
    ordered: list[Period] = sorted(books.periods, key=lambda period: period.number)
    assert len(ordered) > 3
    for before, after in itertools.pairwise(ordered):
        assert before.ends <= after.starts


def test_a_turn_that_runs_again_is_one_charge() -> None:
    books = Books(NOW, [], [])
    plan = plan_of(main(hours(40)))
    granted(books, "t", plan, 30)
    books.record("t", "standard", 12 * MICRO, Tokens(10, 0, 8))
    books.close("t")
    again = granted(books, "t", plan, 30)
    assert left(again.states) == [[10]]
    books.record("t", "standard", 5 * MICRO, Tokens(10, 0, 2))
    assert (books.turns["t"].charge, books.turns["t"].tokens.output) == (12 * MICRO, 8)
    books.record("t", "standard", 20 * MICRO, Tokens(10, 0, 16))
    books.close("t")
    assert left(books.states("ann", plan)) == [[20]]
    check(books, overdrawn=False)


def test_a_turn_that_runs_again_needs_room_for_what_it_may_still_cost() -> None:
    books = Books(NOW, [], [])
    plan = plan_of(main(hours(40)))
    granted(books, "t", plan, 30)
    books.record("t", "standard", 12 * MICRO, Tokens())
    books.close("t")
    granted(books, "other", plan, 11)
    refused(books, "t", plan, 30)
    assert books.turns["t"].closed is not None
    books.close("other")
    granted(books, "t", plan, 30)
