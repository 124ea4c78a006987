"""A process that serves made-up turns until it is killed: `python -m tests.accounts.killed_main URL SEED`.

It says on stdout what a client could have received (`made`, before the record; then `left`), one line per write.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from gearshift.accounts.ledger import Ledger
from gearshift.accounts.meter import Meter, TankEmpty
from gearshift.accounts.tables import open_database
from gearshift.caller import Usage
from gearshift.catalog import GEARS
from tests.accounts.plans_for_tests import DAY, MODEL, hours, main, plan_of, plans_of

STREAMS = 12
PLAN = plan_of(main(hours(300), hours(900, 168)))


def say(*words: object) -> None:
    # One write per line: a kill may not tear it from what it tells of.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def turn(meter: Meter, name: str, rng: random.Random) -> None:
    gear = rng.choice(list(GEARS))
    prompt, limit = rng.randrange(1, 400), rng.randrange(1, 600)
    try:
        booking = await meter.admit(name, f"account-{rng.randrange(3)}", MODEL, gear, prompt, limit)
    except TankEmpty:
        say("refused", name)
        return
    produced = 0
    ending = rng.random()
    usage = Usage(prompt, rng.randrange(prompt), 0, "finished", gear=gear)
    while produced < limit and (ending > 0.3 or produced < limit * ending):
        produced = min(limit, produced + rng.randrange(1, 90))
        usage = Usage(prompt, usage.cached_tokens, produced, "finished", gear=gear)
        say("made", name, produced)
        await booking.progress(usage)
        say("left", name, produced)
        await asyncio.sleep(rng.random() * 0.004)
    booking.close(usage)


async def stream(meter: Meter, name: str, rng: random.Random) -> None:
    number = 0
    while True:
        await turn(meter, f"{name}-{number}", rng)
        number += 1


async def serve(url: str, seed: str) -> None:
    rng = random.Random(seed)
    # Each life has windows of its own, or the tanks would be empty after a few.
    start = 1_800_000_000 + rng.randrange(10_000) * DAY
    ledger = Ledger(open_database(url), lambda: start)
    say("born", seed)
    ledger.start()
    meter = Meter(ledger, plans_of(PLAN), lambda account: PLAN.name, lambda: start)
    names = (f"{seed}-{index}" for index in range(STREAMS))
    await asyncio.gather(*(stream(meter, name, random.Random(name)) for name in names))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
