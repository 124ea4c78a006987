"""The journey of one turn: identify, resolve, admit, generate, settle (trimming joins between resolve and admit).

The service knows engines, callers and the settlement hook; it knows no wire format and no transport. Whatever
happens to a turn, `settle` is called for it exactly once, with exact counts, and its reservation is closed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gearshift.accounts import Caller, KeyRing, Settle, Usage
from gearshift.caller import NO_WORK, Work
from gearshift.catalog import GearName, ModelEntry
from gearshift.conversation import Prompt
from gearshift.engine.calls import reader_of
from gearshift.engine.protocol import (
    ChoiceEnd,
    Constraint,
    Delta,
    Drafts,
    Engine,
    EngineEvent,
    Generation,
    Sampling,
    Started,
)

if TYPE_CHECKING:
    # Brings in the database, which an open server does without.
    from gearshift.accounts.meter import Booking, Meter
    from gearshift.accounts.repeats import Repeats

_log = logging.getLogger(__name__)


class UnknownModel(Exception):
    """No engine serves a model of this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"The model {name!r} does not exist here. Available: {', '.join(known) or 'none'}.")
        self.name = name


@dataclass(frozen=True, slots=True)
class Asked:
    """What a turn asks for, in our words."""

    model: str
    prompt: Prompt
    sampling: Sampling
    gear: GearName = "standard"
    echo: bool = False
    gear_fallback: bool = False
    prediction: str = ""
    drafts: Drafts = "warm"
    constraint: Constraint | None = None


@dataclass(slots=True)
class _Count:
    """What is known of one choice so far."""

    tokens: int = 0
    steps: int = 0
    kept: int = 0
    end: ChoiceEnd | None = None

    @property
    def completion_tokens(self) -> int:
        return self.tokens if self.end is None else self.end.completion_tokens

    @property
    def work(self) -> Work:
        if self.end is not None:
            return self.end.work
        return Work(self.steps, self.steps + self.kept, self.kept, self.kept)


@dataclass(slots=True)
class Turn:
    """One turn under way: who asked what, and exact counts of what came of it so far.

    `model` is known once the turn is resolved, `started` once the engine took it in; `produced` counts the tokens
    that the engine has handed over. `booking` is its reservation, where the caller's account is metered;
    `repeated` when the turn may have run before, under an idempotency key.
    """

    asked: Asked
    caller: Caller
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    model: ModelEntry | None = None
    started: Started | None = None
    produced: int = 0
    ending: Literal["finished", "cancelled", "failed"] = "failed"
    booking: Booking | None = None
    repeated: bool = False
    _choices: dict[int, _Count] = field(default_factory=dict[int, _Count])

    def count(self, batch: Sequence[EngineEvent]) -> None:
        """Take a batch of events into account."""
        for event in batch:
            if isinstance(event, Started):
                self.started = event
            elif isinstance(event, ChoiceEnd):
                self._choice(event.choice).end = event
            elif isinstance(event, Delta) and (tokens := len(event.token_ids)):
                choice = self._choice(event.choice)
                self.produced += tokens
                choice.tokens += tokens
                choice.steps += 1
                choice.kept += event.kept

    def _choice(self, index: int) -> _Count:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Count()
        return choice

    @property
    def gear(self) -> GearName:
        """The gear that serves; the one asked for until one does."""
        return self.started.gear if self.started else self.asked.gear

    @property
    def usage(self) -> Usage:
        """Counts up to now. A choice that ended counts what its end says, a running one what its deltas brought."""
        choices = self._choices.values()
        return Usage(
            prompt_tokens=self.started.prompt_tokens if self.started else 0,
            cached_tokens=self.started.cached_tokens if self.started else 0,
            completion_tokens=sum(choice.completion_tokens for choice in choices),
            ending=self.ending,
            work=sum((choice.work for choice in choices), NO_WORK),
            gear=self.gear,
            predicted=bool(self.asked.prediction),
        )


class Service:
    """Serves turns from one or more engines."""

    def __init__(
        self,
        engines: Sequence[Engine],
        keys: KeyRing,
        settle: Settle,
        meter: Meter | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        """meter: books the turns of accounts that have tanks. repeats: remembers idempotency keys. None of both where
        there are no accounts.
        """
        self.repeats = repeats
        self.engines = tuple(engines)
        self._keys = keys
        self._settle_hook = settle
        self._meter = meter

    def models(self) -> list[ModelEntry]:
        """Every model on offer."""
        return [entry for engine in self.engines for entry in engine.models()]

    def identify(self, key: str | None) -> Caller:
        """Who presents this API key. Raises Unauthorized."""
        return self._keys.caller(key)

    def resolve(self, name: str) -> tuple[Engine, ModelEntry]:
        """The engine and the entry that answer to a model's name or alias. Raises UnknownModel."""
        for engine in self.engines:
            for entry in engine.models():
                if name == entry.id or name in entry.aliases:
                    return engine, entry
        raise UnknownModel(name, [entry.id for entry in self.models()])

    async def journey(self, turn: Turn) -> AsyncGenerator[Sequence[EngineEvent], None]:
        """Everything after `identify`: yields the engine's batches as they come, one per step.

        Close it (`aclose`) or cancel the task that reads it to end the turn early; its rows are free at the next
        step. Raises UnknownModel, TankEmpty, BooksUnavailable, and what `Engine.generate` raises.
        """
        engine, entry = self.resolve(turn.asked.model)
        turn.model = entry
        generation = self.admit(turn, entry)
        try:
            await self.reserve(turn, engine, entry)
            async with aclosing(engine.generate(generation)) as batches:
                read = reader_of(generation)
                async for batch in batches:
                    turn.count(batch)
                    if turn.booking is not None:
                        await turn.booking.progress(turn.usage)
                    yield read(batch) if read else batch
            turn.ending = "finished"
        except (asyncio.CancelledError, GeneratorExit):
            turn.ending = "cancelled"
            raise
        finally:
            self.settle(turn)

    async def reserve(self, turn: Turn, engine: Engine, entry: ModelEntry) -> None:
        """Take the worst case of a metered turn from its tank: the whole prompt, and all that it may answer."""
        if self._meter is None or not self._meter.metered(turn.caller.account):
            return
        asked = turn.asked
        prompt_tokens = await engine.count_tokens(entry.id, asked.prompt)
        room = max(0, entry.context_window - prompt_tokens)
        limit = room if asked.sampling.max_tokens is None else min(room, asked.sampling.max_tokens)
        turn.booking = await self._meter.admit(
            turn.id,
            turn.caller.account,
            entry.id,
            asked.gear,
            prompt_tokens,
            limit * asked.sampling.n,
            repeated=turn.repeated,
        )

    def admit(self, turn: Turn, entry: ModelEntry) -> Generation:
        """The turn as the engine takes it; seats and queues are the engine's own."""
        asked = turn.asked
        return Generation(
            turn_id=turn.id,
            model=entry.id,
            prompt=asked.prompt,
            sampling=asked.sampling,
            caller=turn.caller,
            gear=asked.gear,
            echo=asked.echo,
            gear_fallback=asked.gear_fallback,
            prediction=asked.prediction,
            drafts=asked.drafts,
            constraint=asked.constraint,
        )

    def settle(self, turn: Turn) -> None:
        """Book what the turn used. A hook that breaks must not cost the client its answer."""
        if turn.booking is not None:
            turn.booking.close(turn.usage)
        try:
            self._settle_hook(turn.id, turn.caller, turn.usage)
        except Exception:
            _log.exception("settling turn %s failed; its usage was %s", turn.id, turn.usage)
