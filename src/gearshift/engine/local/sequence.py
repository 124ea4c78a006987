"""The state of a turn inside the engine: its prompt, and one sequence of tokens for each of its choices.

A choice knows what was asked of it and what it has produced; it turns tokens into events and decides when it is
complete. Where its blocks lie and when it runs is the lane's business.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gearshift.caller import Work
from gearshift.catalog import Gear
from gearshift.engine.local.blocks import Digest
from gearshift.engine.local.constraints import Matcher
from gearshift.engine.local.detokenize import TextStream
from gearshift.engine.local.drafting import Drafter
from gearshift.engine.local.mailbox import Failure, Mailbox
from gearshift.engine.local.scheduler import BLOCK_TOKENS, Demand
from gearshift.engine.protocol import (
    ChoiceEnd,
    Delta,
    Drafts,
    EngineEvent,
    Sampling,
    Started,
    TokenLogprob,
)

IN_PROMPT = 1 << 24
"""Set in a count whose token occurs in the prompt (see `count_values` in _kernel.pyi)."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the engine needs to know of a model's tokens.

    Attributes:
        pieces: the bytes of every token id; empty for special tokens, which produce no text.
        ends: ids that end a text.
    """

    pieces: Sequence[bytes]
    ends: frozenset[int]


@dataclass(slots=True, eq=False)
class Turn:
    """One generation in the engine.

    Attributes:
        prompt: its token ids.
        digests: of the prompt's full blocks.
        root: parent of the first digest; it separates cache scopes.
        limit: most tokens that a choice may produce.
        gear: the gear that serves it.
        scope: the caller's cache scope.
        drafts: where drafts may come from.
        gear_fallback: a lower gear may serve it when all seats of its own are taken.
        arrived: when it joined the queue, by the loop's clock.
        prediction: token ids that the answer is likely to repeat.
        matcher: what its answers must fit, at the beginning of one; None when anything is allowed.
        echo: text given back in front of each answer.
        outbox: events of this step, not sent yet.
        failure: why the turn cannot go on; sent after the outbox.
        open: choices that are not complete.
    """

    turn_id: str
    prompt: array[int]
    digests: list[Digest]
    root: Digest
    sampling: Sampling
    seed: int
    limit: int
    gear: Gear
    vocabulary: Vocabulary
    mailbox: Mailbox
    scope: str = ""
    drafts: Drafts = "cold"
    prediction: Sequence[int] = ()
    matcher: Matcher | None = None
    gear_fallback: bool = False
    arrived: float = 0.0
    echo: str = ""
    open: int = 0
    started: bool = False
    cancelled: bool = False
    outbox: list[EngineEvent] = field(default_factory=list[EngineEvent])
    failure: Failure | None = None

    def start(self, cached_tokens: int) -> None:
        """The first rows of the turn were computed."""
        self.started = True
        self.outbox.append(Started(len(self.prompt), cached_tokens, self.seed, self.gear.name))
        if self.echo:
            self.outbox.extend(Delta(choice, self.echo, ()) for choice in range(self.sampling.n))

    def without_answer(self) -> list[EngineEvent]:
        """All events of a turn that asks for no tokens: nothing is computed for it."""
        self.start(cached_tokens=0)
        return [*self.outbox, *(ChoiceEnd(choice, "length", 0) for choice in range(self.sampling.n))]


class Counts:
    """How often token ids occur in a sequence, in the form that the kernel reads."""

    __slots__ = ("_slot_of", "ids", "values")

    def __init__(self, prompt: Sequence[int]) -> None:
        self.ids = array("i")
        self.values = array("i")
        self._slot_of: dict[int, int] = {}
        for token in prompt:
            self.values[self._slot(token)] = IN_PROMPT

    def add(self, token: int) -> None:
        """The answer holds this token once more."""
        self.values[self._slot(token)] += 1

    def copy(self) -> Counts:
        """The same counts, to go on from."""
        twin = Counts(())
        twin.ids, twin.values, twin._slot_of = self.ids[:], self.values[:], self._slot_of.copy()
        return twin

    def _slot(self, token: int) -> int:
        slot = self._slot_of.get(token)
        if slot is None:
            slot = self._slot_of[token] = len(self.ids)
            self.ids.append(token)
            self.values.append(0)
        return slot


@dataclass(slots=True, eq=False)
class Choice(Demand):
    """One answer of a turn: a sequence of tokens, the prompt's first.

    Attributes:
        digests: of its full blocks, as far as they were needed.
        blocks: cache blocks that it holds, in order.
        seat: its row in the lane's arrays, or -1.
        attaching: it may still find its next block in the cache; over with the first row that it computes itself.
        cached: tokens of the prompt that it found.
        draft: drafted tokens that may follow the known ones in the next step.
        drafter: what its drafts come from, once it was asked for one.
        drafted_at: `wanted` when the draft was made.
        guessed: the draft is the drafter's; else it is what the grammar forces.
        matcher: where the answer stands in its grammar, if it has one.
        steps: steps in which it chose tokens.
        chose: rows that chose in those steps: one each, and one for every draft.
        kept: drafted tokens that it kept.
        reason: why it is complete; None while it is not.
    """

    turn: Turn = field(kw_only=True)
    index: int = field(kw_only=True)
    tokens: array[int] = field(kw_only=True)
    digests: list[Digest] = field(kw_only=True)
    texts: TextStream = field(kw_only=True)
    counts: Counts | None = field(kw_only=True)
    matcher: Matcher | None = field(default=None, kw_only=True)
    blocks: list[int] = field(default_factory=list[int], kw_only=True)
    seat: int = field(default=-1, kw_only=True)
    attaching: bool = field(default=True, kw_only=True)
    cached: int = field(default=0, kw_only=True)
    draft: Sequence[int] = field(default=(), kw_only=True)
    drafter: Drafter | None = field(default=None, kw_only=True)
    drafted_at: int = field(default=-1, kw_only=True)
    guessed: bool = field(default=True, kw_only=True)
    steps: int = field(default=0, kw_only=True)
    chose: int = field(default=0, kw_only=True)
    kept: int = field(default=0, kw_only=True)
    reason: Literal["stop", "length"] | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, turn: Turn, index: int, number: int) -> Choice:
        """A choice at its beginning."""
        sampling = turn.sampling
        counted = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1.0
        in_prompt: Sequence[int] = turn.prompt if sampling.repetition_penalty != 1.0 else ()
        return cls(
            number,
            turn.gear.rank,
            len(turn.prompt),
            lookahead=1 if turn.drafts == "off" else turn.gear.lookahead,
            share=turn.gear.share,
            weight=turn.gear.price,
            turn=turn,
            index=index,
            tokens=turn.prompt[:],
            digests=turn.digests[:],
            texts=TextStream(sampling.stop),
            counts=Counts(in_prompt) if counted else None,
            matcher=turn.matcher.copy() if turn.matcher is not None else None,
        )

    @property
    def produced(self) -> int:
        """Tokens of the answer so far."""
        return self.wanted - len(self.turn.prompt)

    @property
    def work(self) -> Work:
        """What was done for its tokens so far."""
        return Work(self.steps, self.chose, self.chose - self.steps, self.kept)

    def late(self, now: float) -> bool:
        """Whether it has waited for its first rows longer than its gear lets it."""
        return not self.turn.started and now - self.turn.arrived > self.turn.gear.queue_wait_s

    @property
    def findable(self) -> int:
        """Full blocks that may be found in the cache: the last known token is always computed."""
        return min((self.wanted - 1) // BLOCK_TOKENS, len(self.digests))

    def accept(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob] = (), rows: int = 1) -> int:
        """Take the next tokens of the answer, all from one step of `rows` rows, up to the one that ends it.

        Adds their events to the turn's outbox, notes whether the answer is complete, and returns how many tokens
        were taken: what lies behind an end is not part of the answer.
        """
        turn, text, taken = self.turn, "", 0
        while taken < len(tokens) and self.reason is None:
            text += self._take(tokens[taken])
            taken += 1
        self.steps += 1
        self.chose += rows
        self.kept += taken - 1
        if self.reason is not None:
            text += self.texts.finish()
            if self.texts.stopped_by is not None:
                self.reason = "stop"
        turn.outbox.append(Delta(self.index, text, tuple(tokens[:taken]), tuple(logprobs[:taken]), taken - 1))
        if self.reason is not None:
            turn.outbox.append(ChoiceEnd(self.index, self.reason, self.produced, self.texts.stopped_by, self.work))
            turn.open -= 1
        return taken

    def _take(self, token: int) -> str:
        """One token more; the text that is certain by it."""
        turn, texts = self.turn, self.texts
        self.tokens.append(token)
        self.wanted += 1
        if self.counts is not None:
            self.counts.add(token)
        text = texts.push(turn.vocabulary.pieces[token])
        if texts.stopped_by is not None or self._ends_with(token):
            self.reason = "stop"
        elif self.produced >= turn.limit:
            self.reason = "length"
        return text

    def _ends_with(self, token: int) -> bool:
        """Whether the answer ends with this token: a token made for that, or the last that its grammar allows."""
        turn = self.turn
        if token in turn.vocabulary.ends:
            return not turn.sampling.ignore_eos
        if self.matcher is None:
            return False
        self.matcher.advance(token)
        return self.matcher.complete
