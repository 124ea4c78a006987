"""Measures what steps cost: a lane of the engine, with the real kernel and made-up prompts, at many numbers of rows.

The numbers of rows take turns, so that a tenant who slows the machine for a while slows all of them. Nothing is
served meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from gearshift import _kernel
from gearshift.catalog import GEARS
from gearshift.engine.local.blocks import chain_root, extend_chain
from gearshift.engine.local.cost import rising
from gearshift.engine.local.home import Progress, silent
from gearshift.engine.local.lane import Lane, LaneLimits
from gearshift.engine.local.load import MOST_THREADS, OpenModel, forward_of
from gearshift.engine.local.mailbox import Mailbox
from gearshift.engine.local.scheduler import BLOCK_TOKENS, blocks_for, keys_of
from gearshift.engine.local.sequence import Turn
from gearshift.engine.protocol import Sampling
from gearshift.plan.calibration import Calibration, Curve

STREAMS = (64, 48, 33, 32, 24, 17, 16, 12, 8, 6, 4, 3, 2, 1)
PROMPTS = (512, 256, 128)
CONTEXTS = (32, 256)
ROUNDS = 5
_STEPS = 4
"""Measured steps at each number of rows in a round; one more before them is not counted."""

Seconds = Mapping[tuple[int, int], Sequence[float]]
"""Durations by (rows, keys)."""


def calibrate(
    model: OpenModel,
    threads: int | None = None,
    rounds: int = ROUNDS,
    streams: Sequence[int] = STREAMS,
    prompts: Sequence[int] = PROMPTS,
    contexts: Sequence[int] = CONTEXTS,
    progress: Progress = silent,
) -> Calibration:
    """The cost of steps of an open model on this machine.

    Args:
        threads: kernel threads; None takes what the engine takes.
        streams: numbers of rows that are measured as streams with one row each, falling.
        prompts: numbers of rows that are measured as parts of prompts.
        contexts: prompt lengths of the streams, in whole blocks.
    """
    team = _kernel.Threads(threads or min(len(os.sched_getaffinity(0)), MOST_THREADS))
    bench = _Bench(model, team, max(streams), max(prompts), max(contexts))
    for round_number in range(rounds):
        for context in contexts:
            progress("calibrating", round_number * len(contexts) + contexts.index(context), rounds * len(contexts))
            bench.streams(streams, context)
        bench.prompts(prompts, round_number)
    progress("calibrating", 1, 1)
    bench.close()
    return Calibration(model.name, model.kernel.isa, team.count, _curve(bench.kernel), _curve(bench.engine))


class _Bench:
    """A lane and the durations of its steps."""

    def __init__(self, model: OpenModel, team: _kernel.Threads, streams: int, rows: int, context: int) -> None:
        blocks = streams * (blocks_for(context) + 4) + blocks_for(rows + 1) * 4
        cache = _kernel.Cache(model.kernel, blocks)
        limits = LaneLimits(streams, blocks, blocks * BLOCK_TOKENS, max(rows, streams), stall_s=1e9)
        self.kernel: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        self.engine: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        self._lane = Lane(model.name, forward_of(model.kernel, cache, team), model.vocabulary(), limits)
        self._mailbox = Mailbox(asyncio.new_event_loop())
        self._vocab = model.shape.vocab

    def close(self) -> None:
        """Nothing more is measured."""
        self._mailbox.loop.close()

    def streams(self, counts: Sequence[int], context: int) -> None:
        """Steps of so many streams, from many to few. Their prompts are found in the cache after the first round."""
        turns = [self._turn(context + 1, key) for key in range(counts[0])]
        for turn in turns:
            self._lane.add(turn)
        while len(self._lane.seated) < counts[0] or any(c.wanted - c.computed > 1 for c in self._lane.seated):
            self._step()
        for count in counts:
            for turn in turns[count:]:
                self._lane.cancel(turn)
            del turns[count:]
            self._step()
            for _ in range(_STEPS):
                # All streams are about as long as the prompt; the exact sum would make a key of every step.
                self._step((count, count * context))
        for turn in turns:
            self._lane.cancel(turn)

    def prompts(self, counts: Sequence[int], round_number: int) -> None:
        """Steps that are a whole prompt, one that was never seen."""
        for count in counts:
            turn = self._turn(count, -1 - round_number)
            self._lane.add(turn)
            self._step((count, keys_of([(self._lane.waiting[0], count)])))
            self._lane.cancel(turn)

    def _step(self, note: tuple[int, int] | None = None) -> None:
        start = time.perf_counter()
        timed = self._lane.run(self._lane.schedule())
        for turn in self._lane.commit(timed):
            turn.outbox.clear()
        seconds = time.perf_counter() - start
        if timed.error is not None:
            raise timed.error
        if note is not None:
            self.kernel[note].append(timed.seconds)
            self.engine[note].append(seconds)

    def _turn(self, tokens: int, key: int) -> Turn:
        prompt = array("i", [(key * 7919 + i * i * 31 + i) % (self._vocab - 1) for i in range(tokens)])
        root = chain_root("calibration", 0, str(key))
        digests: list[bytes] = []
        extend_chain(digests, root, prompt)
        return Turn(
            turn_id="calibration",
            prompt=prompt,
            digests=digests,
            root=root,
            sampling=Sampling(temperature=0.0, ignore_eos=True),
            seed=0,
            limit=10**6,
            gear=GEARS["standard"],
            vocabulary=self._lane.vocabulary,
            mailbox=self._mailbox,
            drafts="off",
        )


def _curve(measured: Seconds) -> Curve:
    """Medians by rows, and one slope by keys: from the same rows at a short and at a long context."""
    typical = {place: median(seconds) for place, seconds in measured.items()}
    by_rows: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for (rows, keys), seconds in sorted(typical.items()):
        by_rows[rows].append((keys, seconds))
    slopes = [(many[-1][1] - many[0][1]) / (many[-1][0] - many[0][0]) for many in by_rows.values() if len(many) > 1]
    # The fewer rows, the less keys weigh against the noise of a step; the upper half has the most.
    per_key = max(0.0, median(slopes[len(slopes) // 2 :])) if slopes else 0.0
    bare = {rows: median(max(s - per_key * keys, s / 20) for keys, s in many) for rows, many in by_rows.items()}
    most = max(rows for rows, many in by_rows.items() if len(many) > 1 or rows == min(by_rows))
    points = list(rising([(float(rows), bare[rows]) for rows in sorted(bare) if rows <= most]))
    for rows in sorted(rows for rows in bare if rows > most):
        # Rows of a prompt choose no tokens and share their keys: a few more of them may cost less than many streams.
        points.append((float(rows), max(bare[rows], points[-1][1])))
    return Curve(tuple(points), per_key)
