"""A stand-in for the kernel, for tests of queues and blocks: the next token is a digest of everything before it.

It keeps the tokens of all positions where the kernel keeps keys and values, so a wrong block table, a block in two
hands or a stale position changes its tokens. `answer` says what a sequence must produce when nothing goes wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.catalog import GEARS, GearName
from gearshift.conversation import Conversation, Prompt, RawText
from gearshift.engine.local.batch import Batch, Chosen
from gearshift.engine.local.blocks import Digest, chain_root, extend_chain
from gearshift.engine.local.constraints import Grammars, Matcher
from gearshift.engine.local.drafting import Draft
from gearshift.engine.local.mailbox import Mailbox
from gearshift.engine.local.scheduler import BLOCK_TOKENS
from gearshift.engine.local.sequence import Choice, Counts, Turn, Vocabulary
from gearshift.engine.protocol import ChoiceEnd, Delta, EngineEvent, Sampling, Started

END = 0
_MOST_DRAFTS = 48
_LETTERS = "abcdefghij \n"
PIECES = [b"", *(letter.encode() for letter in _LETTERS), b"\xf0\x9f", b"\x99\x82", "é".encode(), b"abc", b"\xff"]
VOCABULARY = Vocabulary(PIECES, frozenset([END]))


def tokenize(text: str) -> list[int]:
    """A text a character a token; those that there is no token for are left out."""
    return [PIECES.index(letter.encode()) for letter in text if letter.encode() in PIECES]


GRAMMARS = Grammars(PIECES, VOCABULARY.ends, tokenize)


def next_token(
    tokens: Sequence[int],
    sampling: Sampling,
    seed: int,
    choice: int,
    counts: Counts | None,
    mask: NDArray[np.uint32] | None = None,
) -> int:
    """The token after `tokens`."""
    return _chosen(
        mask,
        np.array(tokens, np.int32),
        np.array([seed, choice] if sampling.temperature else [], np.uint64),
        np.array([] if counts is None else counts.ids, np.int32),
        np.array([] if counts is None else counts.values, np.int32),
        np.array(sorted(dict(sampling.logit_bias).items()), np.float32).reshape(-1, 2)[:, 1],
    )


def _chosen(mask: NDArray[np.uint32] | None, *parts: NDArray[Any]) -> int:
    """One of the tokens that the mask allows, -1 when there is none."""
    digest = hashlib.sha256(b"|".join(part.tobytes() for part in parts)).digest()
    allowed = [token for token in range(len(PIECES)) if mask is None or int(mask[token // 32]) >> token % 32 & 1]
    return allowed[int.from_bytes(digest[:4], "little") % len(allowed)] if allowed else -1


class StandIn:
    """Runs batches as the kernel would, on tokens instead of numbers."""

    def __init__(self, blocks: int) -> None:
        self.memory: NDArray[np.int32] = np.full((blocks, BLOCK_TOKENS), -1, np.int32)
        self.computed = 0
        self.fail_on: int | None = None
        """A step with this token fails."""
        self.no_logits_on: int | None = None
        """After this token there are no finite logits."""

    def __call__(self, batch: Batch) -> Chosen:
        a = batch.arguments
        for name, values in a.items():
            assert values.flags.c_contiguous, name
        assert len(a["tokens"]) == len(a["positions"]) == len(a["sequences"])
        if self.fail_on is not None and self.fail_on in a["tokens"]:
            raise ValueError("this token breaks the step")
        self.computed += len(a["tokens"])
        blocks = a["tables"][a["sequences"], a["positions"] // BLOCK_TOKENS]
        assert (blocks >= 0).all(), "a row without a block"
        cells = blocks.astype(np.int64) * BLOCK_TOKENS + a["positions"] % BLOCK_TOKENS
        assert len(set(cells.tolist())) == len(cells), "two rows of a step in one place"
        self.memory.reshape(-1)[cells] = a["tokens"]
        ids = [self._choose(a, i, int(row)) for i, row in enumerate(a["chosen"])]
        width = batch.top_logprobs
        top = np.tile(np.arange(width, dtype=np.int32), (len(ids), 1))
        return Chosen(np.array(ids, np.int32), -np.arange(len(ids), dtype=np.float32), top, -top.astype(np.float32))

    def _choose(self, a: dict[str, NDArray[Any]], i: int, row: int) -> int:
        end = int(a["positions"][row]) + 1
        table = a["tables"][a["sequences"][row]]
        tokens = self.memory[table[: -(-end // BLOCK_TOKENS)]].reshape(-1)[:end]
        assert (table[-(-(end + _MOST_DRAFTS) // BLOCK_TOKENS) :] == -1).all(), "a block beyond the sequence's end"
        if self.no_logits_on is not None and tokens[-1] == self.no_logits_on:
            return -1
        counts = slice(*a["count_offsets"][i : i + 2])
        biases = slice(*a["bias_offsets"][i : i + 2])
        sampled = a["temperature"][i] > 0
        mask = int(a["mask_index"][i])
        return _chosen(
            None if mask < 0 else a["masks"][mask],
            tokens,
            np.array([a["seed"][i], a["choice"][i]] if sampled else [], np.uint64),
            a["count_ids"][counts],
            a["count_values"][counts],
            a["bias_values"][biases],
        )


class PlainRenderer:
    """Token ids in, token ids out; a text is rendered a character a token."""

    def encode(self, prompt: Prompt) -> array[int]:
        if isinstance(prompt, RawText):
            return array("i", [_LETTERS.index(letter) + 1 for letter in prompt.text])
        assert not isinstance(prompt, Conversation)
        return array("i", prompt.ids)

    def encode_plain(self, text: str) -> array[int]:
        return self.encode(RawText(text))

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(PIECES[token] for token in ids).decode("utf-8", "replace")


def answer(
    prompt: Sequence[int], sampling: Sampling, limit: int, choice: int = 0, matcher: Matcher | None = None
) -> list[int]:
    """What the engine must produce without stop strings: up to and with the end of text, or the last token that its
    grammar allows, or `limit` tokens."""
    matcher = matcher and matcher.copy()
    tokens = list(prompt)
    counted = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1.0
    counts = Counts(prompt if sampling.repetition_penalty != 1.0 else ()) if counted else None
    while len(tokens) - len(prompt) < limit:
        mask = matcher.masks(())[0] if matcher else None
        token = next_token(tokens, sampling, sampling.seed or 0, choice, counts, mask)
        tokens.append(token)
        if counts is not None:
            counts.add(token)
        if token == END and not (sampling.ignore_eos and matcher is None):
            break
        if matcher is not None:
            matcher.advance(token)
            if matcher.complete:
                break
    return tokens[len(prompt) :]


def turn_of(
    prompt: Sequence[int],
    sampling: Sampling,
    limit: int,
    gear: GearName = "standard",
    scope: str = "local",
    vocabulary: Vocabulary = VOCABULARY,
    matcher: Matcher | None = None,
) -> Turn:
    """A turn that a lane takes, without an engine around it."""
    ids = array("i", prompt)
    root = chain_root("stand-in", 1, scope)
    digests: list[Digest] = []
    extend_chain(digests, root, ids)
    return Turn(
        turn_id="turn",
        prompt=ids,
        digests=digests,
        root=root,
        sampling=sampling,
        seed=sampling.seed or 0,
        limit=limit,
        gear=GEARS[gear],
        vocabulary=vocabulary,
        matcher=matcher,
        mailbox=Mailbox(_LOOP),
    )


class HalfRight:
    """A drafter that knows the answer and errs now and then, at places that depend on the sequence alone."""

    def __init__(self, choice: Choice) -> None:
        turn = choice.turn
        sampling = replace(turn.sampling, seed=turn.seed, ignore_eos=True)
        self.answer = answer(turn.prompt, sampling, turn.limit + 20, choice.index, turn.matcher)
        self.grown = choice.tokens[len(turn.prompt) :]
        self.learned = [0, 0]

    def append(self, tokens: Sequence[int]) -> None:
        self.grown.extend(tokens)

    def propose(self, most: int) -> Draft:
        at = len(self.grown)
        assert self.answer[:at] == self.grown.tolist()
        wrong = at * 7 % 11
        draft = [t if i != wrong else (t + 1) % len(PIECES) for i, t in enumerate(self.answer[at : at + most])]
        return Draft(draft[: 1 + at * 5 % 16], 0.9)

    def learn(self, proposed: int, kept: int) -> None:
        assert 0 <= kept <= proposed
        self.learned[0] += proposed
        self.learned[1] += kept


_LOOP = asyncio.new_event_loop()


@dataclass(frozen=True)
class Told:
    """The events of a turn, put together."""

    started: Started
    tokens: dict[int, list[int]]
    texts: dict[int, str]
    ends: dict[int, ChoiceEnd]


def told(events: Sequence[EngineEvent]) -> Told:
    """Check the order of a complete turn's events and put them together."""
    assert isinstance(events[0], Started)
    tokens: dict[int, list[int]] = {}
    texts: dict[int, str] = {}
    ends: dict[int, ChoiceEnd] = {}
    for event in events[1:]:
        assert not isinstance(event, Started), "started twice"
        assert event.choice not in ends, "an event after the end of its choice"
        if isinstance(event, Delta):
            tokens.setdefault(event.choice, []).extend(event.token_ids)
            texts[event.choice] = texts.get(event.choice, "") + event.text
        else:
            assert isinstance(event, ChoiceEnd)
            ends[event.choice] = event
    for choice, end in ends.items():
        assert end.completion_tokens == len(tokens.get(choice, ()))
    return Told(events[0], tokens, texts, ends)
