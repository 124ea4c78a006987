"""One turn in all gears at once on a running server, with other streams as load: who says what when, and whether all
say the same. Showing it is `race_view`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from gearshift.catalog import GEARS, GearName
from gearshift.proof.client import Ask, Client, Counts, GearWork, Piece, Refused, Unreachable
from gearshift.proof.prompts import source_piece

_LOAD_START_S = 30.0
"""The race begins when all streams of the load run, or after this time."""
_LOAD_TOKENS = 2000
_SHOWN_AROUND = 30
"""Characters of context around a difference."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text that arrived in one event.

    Attributes:
        tokens: that it brought.
        kept: those of them that were accepted drafts.
    """

    text: str
    tokens: int
    kept: int


@dataclass(slots=True)
class Column:
    """One gear's run.

    Attributes:
        began: `time.perf_counter()` when the turn was sent.
        arrivals: moments since then, in seconds, and tokens so far.
        fault: why the gear did not run to its end.
    """

    gear: GearName
    began: float = 0.0
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    arrivals: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    counts: Counts = field(default_factory=Counts)
    ending: str | None = None
    fault: str | None = None
    over: bool = False

    def take(self, piece: Piece) -> None:
        """One event more."""
        before, work = self.counts, self.work
        if piece.counts is not None:
            self.counts = piece.counts
        tokens = self.counts.completion_tokens - before.completion_tokens
        if piece.text:
            self.chunks.append(Chunk(piece.text, tokens, self.work.kept - work.kept))
        if tokens:
            self.arrivals.append((piece.at - self.began, self.counts.completion_tokens))
        self.ending = piece.ending or self.ending

    @property
    def price(self) -> float:
        """What a token costs, as a multiple of the standard one."""
        return GEARS[self.gear].price

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def work(self) -> GearWork:
        """The work so far."""
        return self.counts.gearshift or GearWork(self.gear)

    @property
    def first_s(self) -> float | None:
        """Seconds to the first token."""
        return self.arrivals[0][0] if self.arrivals else None

    @property
    def rate(self) -> float | None:
        """Tokens per second after the first event; None before there are two."""
        if len(self.arrivals) < 2:
            return None
        (begin, had), (end, has) = self.arrivals[0], self.arrivals[-1]
        return (has - had) / max(end - begin, 1e-9)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether all gears said the same.

    Attributes:
        identical: they did, and all of them ran to the end.
        sentence: for a person.
    """

    identical: bool
    sentence: str


class Race:
    """The columns of a race and its load.

    Args:
        ask: the turn; its gear is replaced.
        load: streams in the standard gear that run meanwhile.
    """

    def __init__(self, client: Client, ask: Ask, load: int, gears: Sequence[GearName] = tuple(GEARS)) -> None:
        self.ask = ask
        self.load = load
        self.columns = [Column(gear) for gear in gears]
        self._client = client
        self._running = 0
        self._all_run = asyncio.Event()

    async def run(self, moved: Callable[[Column], None]) -> None:
        """Run all gears to their end. A gear that is refused says so in its column. The load ends with the race,
        however that ends.

        moved: told when a column has something new.

        Raises:
            Unreachable: there is no server, or it went away.
        """
        async with self._under_load():
            racers = [asyncio.create_task(self._one(column, moved)) for column in self.columns]
            try:
                await asyncio.gather(*racers)
            finally:
                await _ended(racers)

    async def _one(self, column: Column, moved: Callable[[Column], None]) -> None:
        column.began = time.perf_counter()
        try:
            async with aclosing(self._client.turn(replace(self.ask, gear=column.gear))) as pieces:
                async for piece in pieces:
                    column.take(piece)
                    moved(column)
        except Refused as refused:
            again = f" Again in {refused.retry_after_s:.0f} s." if refused.retry_after_s else ""
            column.fault = f"{refused}{again}"
        column.over = True
        moved(column)

    @contextlib.asynccontextmanager
    async def _under_load(self) -> AsyncGenerator[None]:
        tasks = [asyncio.create_task(self._background(random.Random(at))) for at in range(self.load)]
        try:
            if tasks:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOAD_START_S):
                        await self._all_run.wait()
            for task in tasks:
                if task.done():
                    task.result()  # it ends only by an error
            yield
        finally:
            await _ended(tasks)

    async def _background(self, draw: random.Random) -> None:
        """One stream after the other, each on a prompt of its own."""
        while True:
            prompt = source_piece(draw, 20) + f"\n# {draw.random()}\n"
            ask = Ask(self.ask.model, prompt, raw=True, max_tokens=_LOAD_TOKENS, ignore_eos=True)
            counted = False
            try:
                async with aclosing(self._client.turn(ask)) as pieces:
                    async for _ in pieces:
                        if not counted:
                            counted = True
                            self._running += 1
                            if self._running >= self.load:
                                self._all_run.set()
            except Refused as refused:
                await asyncio.sleep(refused.retry_after_s or 1.0)
            except Unreachable:
                self._all_run.set()
                raise
            finally:
                self._running -= counted

    def verdict(self) -> Verdict:
        """Compare the columns."""
        ran = [column for column in self.columns if column.over and column.fault is None]
        if len(ran) < 2:
            return Verdict(False, "nothing to compare: fewer than two gears ran to the end")
        first = ran[0]
        for column in ran[1:]:
            if (difference := _difference(first, column)) is not None:
                return Verdict(False, difference)
        said = f"identical: {first.counts.completion_tokens} tokens in {' and '.join(column.gear for column in ran)}"
        if missing := [column.gear for column in self.columns if column not in ran]:
            return Verdict(False, f"{said}; {' and '.join(missing)} did not run to the end")
        return Verdict(True, said)


def _difference(one: Column, other: Column) -> str | None:
    ours, theirs = one.text, other.text
    pair = f"{one.gear} and {other.gear}"
    if ours != theirs:
        at = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
        )
        begin = max(0, at - _SHOWN_AROUND)
        shown = (text[begin : at + _SHOWN_AROUND] for text in (ours, theirs))
        return f"DIFFERENT: {pair} part at character {at}: " + " against ".join(map(repr, shown))
    for what, a, b in (
        ("tokens", one.counts.completion_tokens, other.counts.completion_tokens),
        ("endings", one.ending, other.ending),
    ):
        if a != b:
            return f"DIFFERENT: {pair} have the same text, but other {what}: {a} against {b}"
    return None


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have closed their connections."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
