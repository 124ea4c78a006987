"""Who is seated: seats of a gear, and who makes place for a faster turn."""

from __future__ import annotations

from gearshift.engine.local.scheduler import PATIENCE, PROTECTED_AFTER, Demand, displaced, next_to_sit

SEATS = {0: None, 1: 8, 2: 2}


def standard(number: int, blocks: int = 2) -> Demand:
    return Demand(number, 0, blocks * 32 - 5, computed=blocks * 32 - 6, held=blocks)


def fast(number: int, tokens: int = 40) -> Demand:
    return Demand(number, 2, tokens, share=0.6)


def test_a_gear_without_a_free_seat_waits_and_others_do_not() -> None:
    seated = [fast(0), fast(1)]
    waiting = [fast(2), standard(3)]
    assert next_to_sit(waiting, seated, 10, SEATS) is waiting[1]
    assert next_to_sit(waiting, seated[:1], 10, SEATS) is waiting[0]
    assert next_to_sit(waiting[:1], seated, 10, SEATS) is None
    assert next_to_sit([], seated, 10, SEATS) is None


def test_without_free_seats_only_a_gear_with_a_share_comes_into_question() -> None:
    seated = [standard(i) for i in range(4)]
    patient = standard(5)
    patient.overtaken = PATIENCE
    assert next_to_sit([patient], seated, 0, SEATS) is None
    turn = fast(6)
    assert next_to_sit([patient, turn], seated, 0, SEATS) is turn
    assert next_to_sit([turn], [fast(0)], 0, SEATS) is None


def test_the_newest_of_the_lowest_gear_makes_place() -> None:
    seated = [standard(0), Demand(1, 1, 60, computed=59, held=2, share=0.25), standard(2), fast(3)]
    assert displaced(seated, fast(9), 0, 100) is seated[2]
    assert displaced(seated, fast(9), 1, 100) is None, "there is a seat, and there are blocks"
    assert displaced(seated, standard(9), 0, 100) is None, "a standard turn displaces nobody"
    seated[2].preempted = PROTECTED_AFTER
    assert displaced(seated, fast(9), 0, 100) is seated[0]
    seated[0].preempted = PROTECTED_AFTER
    assert displaced(seated, fast(9), 0, 100) is seated[1]
    seated[1].preempted = PROTECTED_AFTER
    assert displaced(seated, fast(9), 0, 100) is None


def test_blocks_are_taken_only_when_that_is_enough() -> None:
    seated = [standard(0, blocks=4), standard(1, blocks=4)]
    assert displaced(seated, fast(9, tokens=100), 5, 1) is seated[1]
    assert displaced(seated, fast(9, tokens=32 * 9), 5, 1) is seated[1]
    assert displaced(seated, fast(9, tokens=32 * 9 + 1), 5, 1) is None
