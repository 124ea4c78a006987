"""Runs turns on an engine and keeps what came out, token by token; also the company in which cases are run."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from gearshift.caller import NO_WORK, Caller, Work
from gearshift.catalog import GearName
from gearshift.conversation import RawText
from gearshift.engine.protocol import (
    Called,
    ChoiceEnd,
    Delta,
    Drafts,
    Engine,
    Generation,
    Overloaded,
    Sampling,
    Started,
)
from gearshift.proof.cases import Case
from gearshift.proof.passes import Pass
from gearshift.proof.prompts import source_piece

_MOST_WAIT_S = 1.0
"""Longest pause before a turn that found no place asks again."""
_OTHERS_BYTES = 300
"""Longest prompt of the company: no token is shorter than a byte, so it fits into every window that is proven."""
_PATIENCE_S = 300.0
"""After so long without a place something is wrong."""


@dataclass(slots=True)
class ChoiceAnswer:
    """All that must be the same for one choice, whatever the gear."""

    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    text: str = ""
    ending: tuple[str, str | None] = ("", None)


@dataclass(slots=True)
class TurnAnswer:
    """One turn's answer and what it took."""

    gear: GearName
    choices: list[ChoiceAnswer]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    work: Work = NO_WORK


class Runner:
    """Runs cases on one engine."""

    def __init__(self, engine: Engine, model: str) -> None:
        self.engine = engine
        self._model = model
        self._turns = 0

    async def run(self, case: Case, number: int, how: Pass) -> list[TurnAnswer]:
        """The answers to a whole conversation, each turn in the gear that the pass has for it."""
        caller = Caller("proof", f"proof-{how.scope}")
        answers: list[TurnAnswer] = []
        for at in range(len(case.script.says)):
            generation = Generation(
                turn_id=self._next_id(),
                model=self._model,
                prompt=case.prompt([answer.choices[0].text for answer in answers]),
                sampling=case.sampling,
                caller=caller,
                gear=how.gears[(number + at) % len(how.gears)],
                prediction=case.script.prediction,
                drafts=how.drafts,
                constraint=case.constraint,
            )
            answers.append(await self._admitted(generation))
        return answers

    @contextlib.asynccontextmanager
    async def company(self, streams: int, seed: int) -> AsyncGenerator[None]:
        """Other callers' streams that join and leave at random while the block runs."""
        tasks = [asyncio.create_task(self._other(random.Random(seed * 1000 + at))) for at in range(streams)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    async def _other(self, draw: random.Random) -> None:
        while True:
            await asyncio.sleep(draw.random() * 0.2)
            sampling = Sampling(
                max_tokens=draw.choice([1, 8, 30, 120]),
                temperature=draw.choice([0.0, 1.0]),
                seed=draw.randrange(2**53),
                frequency_penalty=draw.choice([0.0, 0.5]),
                ignore_eos=True,
            )
            text = source_piece(draw, draw.randint(1, 12)).encode()[:_OTHERS_BYTES].decode(errors="ignore")
            prompt = RawText(text or "#")
            # The seats of the fastest gear are few and belong to the cases.
            gear: GearName = draw.choice(("standard", "standard", "priority"))
            drafts: Drafts = draw.choice(("off", "cold"))
            caller = Caller("other", f"other-{draw.randrange(3)}")
            generation = Generation(self._next_id(), self._model, prompt, sampling, caller, gear, drafts=drafts)
            stays = draw.choice([1, 5, 20, 1000])
            stream = self.engine.generate(generation)
            try:
                async for _ in stream:
                    stays -= 1
                    if stays <= 0:
                        break
            except Overloaded as full:
                await asyncio.sleep(min(full.retry_after_s, _MOST_WAIT_S))
            finally:
                await stream.aclose()

    async def _admitted(self, generation: Generation) -> TurnAnswer:
        """Ask until there is a place: how long a turn waits is not what is proven here."""
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return await self._answer(generation)
            except Overloaded as full:
                if time.monotonic() > give_up:
                    raise
                await asyncio.sleep(min(full.retry_after_s, _MOST_WAIT_S))

    async def _answer(self, generation: Generation) -> TurnAnswer:
        answer = TurnAnswer(generation.gear, [ChoiceAnswer() for _ in range(generation.sampling.n)])
        async for batch in self.engine.generate(generation):
            for event in batch:
                match event:
                    case Started():
                        answer.gear = event.gear
                        answer.prompt_tokens, answer.cached_tokens = event.prompt_tokens, event.cached_tokens
                    case Called():
                        pass  # the engine itself reads no calls out of its text
                    case Delta():
                        choice = answer.choices[event.choice]
                        choice.token_ids += event.token_ids
                        choice.text += event.text
                        for one in event.logprobs:
                            top = tuple((other.token_id, other.logprob) for other in one.top)
                            choice.logprobs.append((one.token_id, one.logprob, *top))
                    case ChoiceEnd():
                        answer.choices[event.choice].ending = (event.reason, event.stop_text)
                        answer.work += event.work
        return answer

    def _next_id(self) -> str:
        self._turns += 1
        return f"proof-{self._turns}"
