"""The first steps of a lane: they leave nothing behind and know what steps cost."""

from __future__ import annotations

from gearshift.engine.local.lane import Lane, LaneLimits
from gearshift.engine.local.warmup import ROWS
from gearshift.engine.protocol import Sampling
from tests.engine.local.stand_in import VOCABULARY, StandIn, answer, told, turn_of


def test_warming_up_leaves_a_lane_as_it_was() -> None:
    kernel = StandIn(20)
    lane = Lane("m", kernel, VOCABULARY, LaneLimits(2, 20, 256, 256, stall_s=0.1))
    lane.warm_up()
    assert [rows for rows, _ in lane.meter.cost().points] == list(ROWS)
    assert kernel.computed >= sum(ROWS) * 2
    assert lane.seats.free == 2
    assert (lane.seats.tables == -1).all()
    assert lane.pool.free == lane.pool.total
    turn = turn_of([3, 4], Sampling(temperature=0.0), 20)
    lane.add(turn)
    while lane.busy:
        lane.commit(lane.run(lane.schedule()))
    assert told(turn.outbox).tokens[0] == answer([3, 4], Sampling(temperature=0.0), 20)


def test_a_small_cache_is_warmed_up_as_far_as_it_goes() -> None:
    lane = Lane("m", StandIn(1), VOCABULARY, LaneLimits(1, 1, 32, 32, stall_s=0.1))
    lane.warm_up()
    assert [rows for rows, _ in lane.meter.cost().points] == [rows for rows in ROWS if rows <= 32]
