"""An engine with a script instead of a model, which can be told to err: what is under test is whether a proof sees it.

Its tokens are a digest of prompt, seed, choice and position. In the fast gears it "drafts" three tokens a step and
keeps one, unless told otherwise.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from gearshift.caller import Work
from gearshift.catalog import ModelEntry
from gearshift.conversation import Prompt
from gearshift.engine.protocol import (
    ChoiceEnd,
    Delta,
    EngineEvent,
    EngineStatus,
    Generation,
    Started,
    TokenLogprob,
)

WINDOW = 4096


def _digest(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "little")


@dataclass
class Slip:
    """One wrong thing: in the turns that `where` picks, what stands at `at` of the first choice."""

    what: str
    at: int
    where: Callable[[Generation], bool]


@dataclass
class ErringEngine:
    """Keeps one draft of three, or as many as told."""

    slip: Slip | None = None
    kept: int = 1
    drafted: int = 3
    seen: list[Generation] = field(default_factory=list[Generation])

    def models(self) -> Sequence[ModelEntry]:
        return [ModelEntry("erring", WINDOW, chat=True, created=0, owner="tests")]

    async def generate(self, generation: Generation) -> AsyncGenerator[Sequence[EngineEvent], None]:
        self.seen.append(generation)
        await asyncio.sleep(0)
        slip = self.slip if self.slip and self.slip.where(generation) else None
        gear = "standard" if slip and slip.what == "gear" else generation.gear
        yield [Started(await self.count_tokens("erring", generation.prompt), 0, 0, gear)]
        for choice in range(generation.sampling.n):
            yield self._choice(generation, choice, slip if choice == 0 else None)

    def _choice(self, generation: Generation, choice: int, slip: Slip | None) -> list[EngineEvent]:
        sampling = generation.sampling
        most = sampling.max_tokens or 16
        ids = [_digest(generation.prompt, sampling.seed, choice, at) % 1000 for at in range(most)]
        what, where = (slip.what, slip.at) if slip else ("", 0)
        if what == "token":
            ids[where] += 1
        if what == "length":
            ids = ids[:where]
        logprobs = [TokenLogprob(token, b"", -token / 7, ()) for token in ids] if sampling.logprobs is not None else []
        if what == "logprob" and logprobs:
            logprobs[where] = TokenLogprob(ids[where], b"", -ids[where] / 7 + 1e-9, ())
        events: list[EngineEvent] = [Delta(choice, " ".join(map(str, ids)), tuple(ids), tuple(logprobs))]
        drafts = generation.drafts != "off" and generation.gear != "standard"
        work = Work(most, most * 4, most * self.drafted, most * self.kept) if drafts else Work(most, most)
        return [*events, ChoiceEnd(choice, "stop" if what == "ending" else "length", len(ids), work=work)]

    async def count_tokens(self, model: str, prompt: Prompt) -> int:
        return len(repr(prompt)) // 4

    def status(self) -> EngineStatus:
        return EngineStatus(0, 0, 0, 0)

    async def close(self) -> None:
        """Nothing is held."""
