"""Which rows the next step computes: pure functions over plain data, without clock, thread or I/O.

Nothing compiled is imported here, so that the simulator and other engines use the same functions.
"""

from gearshift.engine.local.scheduler.balance import Balance
from gearshift.engine.local.scheduler.demand import (
    BLOCK_TOKENS,
    PATIENCE,
    PROTECTED_AFTER,
    Demand,
    Limits,
    Step,
    blocks_for,
    keys_of,
    seconds_of,
)
from gearshift.engine.local.scheduler.rows import LEAST_CHUNK, STRETCH
from gearshift.engine.local.scheduler.schedule import MOST_FOR_PROMPTS, MOST_LEFT_OUT, schedule
from gearshift.engine.local.scheduler.seating import displaced, fits, next_in_line, next_to_sit

__all__ = [
    "BLOCK_TOKENS",
    "LEAST_CHUNK",
    "MOST_FOR_PROMPTS",
    "MOST_LEFT_OUT",
    "PATIENCE",
    "PROTECTED_AFTER",
    "STRETCH",
    "Balance",
    "Demand",
    "Limits",
    "Step",
    "blocks_for",
    "displaced",
    "fits",
    "keys_of",
    "next_in_line",
    "next_to_sit",
    "schedule",
    "seconds_of",
]
