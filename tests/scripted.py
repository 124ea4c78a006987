"""An engine whose answers are a script: for tests of what lies above engines. It queues, counts and stops like one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from gearshift.caller import NO_WORK, Work
from gearshift.catalog import GearName, ModelEntry
from gearshift.conversation import Conversation, Message, Prompt, RawText, RawTokens
from gearshift.engine.protocol import (
    ChoiceEnd,
    ContextOverflow,
    Delta,
    EngineEvent,
    EngineFailure,
    EngineStatus,
    Generation,
    InvalidGeneration,
    Overloaded,
    Started,
    TokenLogprob,
)

WORDS = ("Gears", " change", " speed", ",", " not", " answers", " 齿轮", " 🙂", ".")
SEED = 4242
DRAFT_ROWS = 4


class ScriptedEngine:
    """Answers every turn with WORDS, one token per word and step, over and over until `max_tokens` or the end.

    A prompt counts one token per word; the first of them are "cached". Prompts that hold certain words misbehave:
    `overload`, `break-early`, `late-failure` (once it has a slot), `break-late`, `invalid-bias`, `forever`, `silent`.
    With `drafts` in the prompt, and above the standard gear, every step but the last has DRAFT_ROWS rows and brings two
    words: one draft is kept.
    """

    def __init__(
        self,
        *,
        slots: int = 32,
        waiting_limit: int = 1000,
        window: int = 64,
        pause_s: float = 0.0,
        patience: int = 1 << 40,
        only_gear: GearName | None = None,
    ) -> None:
        """patience: most tokens of any answer, whatever was asked for. only_gear: the one that has seats."""
        self.slots = slots
        self.waiting_limit = waiting_limit
        self.window = window
        self.pause_s = pause_s
        self.patience = patience
        self.only_gear: GearName | None = only_gear
        self.seen: list[Generation] = []
        self.running = 0
        self.waiting = 0
        self.closed = False
        self._free = asyncio.Semaphore(slots)

    def models(self) -> Sequence[ModelEntry]:
        return [
            ModelEntry("scripted", self.window, chat=True, created=1_700_000_000, owner="tests", aliases=("other",))
        ]

    async def generate(self, generation: Generation) -> AsyncGenerator[Sequence[EngineEvent], None]:
        self.seen.append(generation)
        words = words_of(generation.prompt)
        self._check(generation, words)
        if self.running >= self.slots and self.waiting >= self.waiting_limit:
            raise Overloaded("All seats are taken and the queue is full.", retry_after_s=1.5)
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            if "late-failure" in words:
                raise EngineFailure("the script says so")
            seed = generation.sampling.seed
            gear = self.only_gear or generation.gear
            yield [Started(len(words), min(2, len(words)), SEED if seed is None else seed, gear)]
            async for batch in self._steps(generation, words):
                yield batch
        finally:
            self.running -= 1
            self._free.release()

    async def _steps(self, generation: Generation, words: list[str]) -> AsyncGenerator[Sequence[EngineEvent], None]:
        sampling = generation.sampling
        if generation.echo:
            yield [Delta(choice, " ".join(words), ()) for choice in range(sampling.n)]
        limit = sampling.max_tokens
        if limit is None:
            limit = self.patience if "forever" in words else len(WORDS) + 1
        limit = min(limit, self.patience)
        pace = 2 if "drafts" in words and generation.gear != "standard" and generation.drafts != "off" else 1
        step, work = 0, NO_WORK
        while step < limit:
            await asyncio.sleep(self.pause_s)
            if self.closed or ("break-late" in words and step == 3):
                raise EngineFailure("the script says so")
            if "silent" in words:
                yield [Delta(choice, "", (step,)) for choice in range(sampling.n)]
                yield [ChoiceEnd(choice, "stop", 1, work=Work(1, 1)) for choice in range(sampling.n)]
                return
            if step == len(WORDS) and not sampling.ignore_eos and "forever" not in words:
                work += Work(1, 1)
                yield [ChoiceEnd(choice, "stop", step + 1, work=work) for choice in range(sampling.n)]
                return
            tokens = tuple(range(step, min(step + pace, limit, len(WORDS) + step - step % len(WORDS))))
            kept = len(tokens) - 1
            step += len(tokens)
            work += Work(1, DRAFT_ROWS, DRAFT_ROWS - 1, kept) if kept else Work(1, 1)
            said = [WORDS[token % len(WORDS)] for token in tokens]
            logprobs = tuple(one for word in said for one in _logprobs(sampling.logprobs, word))
            yield [Delta(choice, "".join(said), tokens, logprobs, kept) for choice in range(sampling.n)]
        yield [ChoiceEnd(choice, "length", limit, work=work) for choice in range(sampling.n)]

    def _check(self, generation: Generation, words: list[str]) -> None:
        sampling = generation.sampling
        if "overload" in words:
            raise Overloaded("The script says so.", retry_after_s=1.5)
        if self.only_gear not in (None, generation.gear) and not generation.gear_fallback:
            raise Overloaded(f"All seats of the gear {generation.gear} are taken.", retry_after_s=3.2)
        if len(words) + (sampling.max_tokens or 0) > self.window and "forever" not in words:
            raise ContextOverflow(len(words), sampling.max_tokens, self.window)
        if "break-early" in words:
            raise EngineFailure("the script says so")
        if "invalid-bias" in words:
            raise InvalidGeneration("Token 999999 is not in the vocabulary.", "logit_bias")

    async def count_tokens(self, model: str, prompt: Prompt) -> int:
        return len(words_of(prompt))

    def status(self) -> EngineStatus:
        return EngineStatus(self.running, self.waiting, self.running * 10, 1000, 5, (0.001, 0.02), (1, 32))

    async def close(self) -> None:
        self.closed = True


def words_of(prompt: Prompt) -> list[str]:
    """The words of a prompt, which are its tokens here."""
    match prompt:
        case RawText():
            return prompt.text.split()
        case RawTokens():
            return [str(one) for one in prompt.ids]
        case Conversation():
            return " ".join(item.text for item in prompt.items if isinstance(item, Message)).split()


def _logprobs(alternatives: int | None, word: str) -> tuple[TokenLogprob, ...]:
    if alternatives is None:
        return ()
    top = tuple(TokenLogprob(rank, f"alt{rank}".encode(), -1.0 - rank) for rank in range(alternatives))
    return (TokenLogprob(7, word.encode(), -0.5, top),)
