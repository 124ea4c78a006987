"""The local engine: the protocol on one side, the loop thread on the other.

A turn is checked, rendered to tokens and handed to the loop; its events come back through a mailbox. Loading models
is done elsewhere.
"""

from __future__ import annotations

import asyncio
import secrets
from array import array
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gearshift.catalog import ModelEntry
from gearshift.conversation import Conversation, Prompt, RawText
from gearshift.engine.local.admission import answer_limit, check_prompt, check_sampling
from gearshift.engine.local.blocks import Digest, chain_root, extend_chain
from gearshift.engine.local.constraints import Grammars
from gearshift.engine.local.lane import Lane
from gearshift.engine.local.loop import Loop
from gearshift.engine.local.mailbox import Mailbox
from gearshift.engine.local.sequence import Turn
from gearshift.engine.protocol import ChoiceEnd, EngineEvent, EngineStatus, Generation, InvalidGeneration

_INLINE_CHARACTERS = 2000
"""Prompts up to this length are rendered on the event loop; a longer one would hold up the streams."""


class Renderer(Protocol):
    """What the engine needs of a model's template and tokenizer. Called from several threads."""

    def encode(self, prompt: Prompt) -> array[int]:
        """Token ids of a prompt as the model reads it. Raises InvalidGeneration."""
        ...

    def encode_plain(self, text: str) -> array[int]:
        """Token ids of a text by itself: no control tokens, nothing in front."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; special tokens have none."""
        ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that the engine serves.

    Attributes:
        format_version: version of the packed weights, which decides the bits of keys and values.
    """

    entry: ModelEntry
    sha256: str
    format_version: int
    renderer: Renderer
    lane: Lane
    grammars: Grammars

    @property
    def context(self) -> int:
        """Longest prompt plus answer: the model's window, or the whole cache when that is smaller."""
        return self.lane.limits.context


@dataclass(frozen=True, slots=True)
class Resident:
    """What a model keeps in memory. The kernel's working memory for a step comes on top of it.

    Attributes:
        isa: the kernel's path.
        weights_bytes: packed weights, mapped from the cache folder and shared between processes.
        cache_bytes, cache_tokens: keys and values; touched as they are used.
    """

    model: str
    isa: str
    threads: int
    weights_bytes: int
    cache_bytes: int
    cache_tokens: int


class LocalEngine:
    """Runs models in this process (see `Engine`).

    Attributes:
        resident: what each model keeps in memory.
    """

    def __init__(
        self, models: Sequence[ServedModel], max_waiting: int = 512, resident: Sequence[Resident] = ()
    ) -> None:
        self.resident = tuple(resident)
        self._models = {model.entry.id: model for model in models}
        self._loop = Loop([model.lane for model in models], max_waiting)

    def models(self) -> Sequence[ModelEntry]:
        """The models that this engine serves."""
        return [model.entry for model in self._models.values()]

    async def generate(self, generation: Generation) -> AsyncGenerator[Sequence[EngineEvent], None]:
        """Run one turn (see `Engine.generate`)."""
        model = self._model(generation.model)
        turn = await self._prepare(model, generation)
        if turn.limit == 0:
            yield turn.without_answer()
            return
        turn.mailbox.emptied = lambda: self._loop.resume(turn)
        self._loop.submit(model.lane, turn)
        running = generation.sampling.n
        try:
            while running:
                events = await turn.mailbox.take()
                running -= sum(isinstance(event, ChoiceEnd) for event in events)
                yield events
        finally:
            if running:
                self._loop.cancel(turn)

    async def count_tokens(self, model: str, prompt: Prompt) -> int:
        """Tokens of the prompt as the model would read it."""
        return len(await self._encode(self._model(model), prompt))

    def status(self) -> EngineStatus:
        """A snapshot for /metrics and the console."""
        return self._loop.status()

    async def close(self) -> None:
        """Stop now: running turns fail with EngineFailure."""
        await asyncio.to_thread(self._loop.close)

    def _model(self, name: str) -> ServedModel:
        try:
            return self._models[name]
        except KeyError:
            raise InvalidGeneration(
                f"This engine does not serve {name!r}; it serves {', '.join(self._models)}.", "model"
            ) from None

    async def _encode(self, model: ServedModel, prompt: Prompt) -> array[int]:
        if isinstance(prompt, Conversation) or (isinstance(prompt, RawText) and len(prompt.text) > _INLINE_CHARACTERS):
            return await asyncio.to_thread(model.renderer.encode, prompt)
        return model.renderer.encode(prompt)

    async def _predicted(self, model: ServedModel, generation: Generation) -> Sequence[int]:
        """Token ids of the prediction; none where the turn will not draft."""
        text = generation.prediction
        if not text or generation.drafts == "off" or model.lane.gears[generation.gear].lookahead == 1:
            return ()
        if len(text) > _INLINE_CHARACTERS:
            return await asyncio.to_thread(model.renderer.encode_plain, text)
        return model.renderer.encode_plain(text)

    async def _prepare(self, model: ServedModel, generation: Generation) -> Turn:
        """The turn as the loop takes it. Raises InvalidGeneration and ContextOverflow."""
        vocab = len(model.lane.vocabulary.pieces)
        sampling, constraint = generation.sampling, generation.constraint
        check_sampling(sampling, vocab)
        if constraint is not None and sampling.ignore_eos:
            raise InvalidGeneration("An answer in a given format ends with it; leave out ignore_eos.", "ignore_eos")
        prompt = await self._encode(model, generation.prompt)
        check_prompt(prompt, vocab)
        limit = answer_limit(len(prompt), sampling.max_tokens, model.context)
        matcher = await model.grammars.compiled(constraint) if constraint is not None else None
        root = chain_root(model.sha256, model.format_version, generation.caller.cache_scope)
        digests: list[Digest] = []
        extend_chain(digests, root, prompt)
        return Turn(
            turn_id=generation.turn_id,
            prompt=prompt,
            digests=digests,
            root=root,
            sampling=sampling,
            seed=secrets.randbelow(2**53) if sampling.seed is None else sampling.seed,
            limit=limit,
            gear=model.lane.gears[generation.gear],
            gear_fallback=generation.gear_fallback,
            scope=generation.caller.cache_scope,
            drafts=generation.drafts,
            prediction=await self._predicted(model, generation),
            matcher=matcher,
            vocabulary=model.lane.vocabulary,
            mailbox=Mailbox(asyncio.get_running_loop()),
            echo=self._echo(model, generation.prompt, prompt) if generation.echo else "",
        )

    def _echo(self, model: ServedModel, prompt: Prompt, ids: Sequence[int]) -> str:
        return prompt.text if isinstance(prompt, RawText) else model.renderer.decode(ids)
