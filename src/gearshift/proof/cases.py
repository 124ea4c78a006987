"""The cases of a proof: every kind of prompt under every way of choosing tokens, up to the edge of the window.

A case says what is asked, not in which gear or company: that is a pass (`passes`). The same seed makes the same cases.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from gearshift.conversation import Conversation, Message, Prompt, RawText
from gearshift.engine.protocol import Constraint, JsonObject, JsonSchema, Sampling
from gearshift.proof.prompts import Script, scripts, source_piece

SHORTEST_ANSWER, LONGEST_ANSWER = 16, 48
_BIASED_BELOW = 1500
"""Biases go to token ids below this: there the frequent tokens of a vocabulary are."""
_EDGE_ROOM = 24
"""Tokens that a case at the edge of a window leaves for the answer, about."""

_SCHEMA = (
    '{"type": "object", "properties": {"server": {"type": "string"}, "port": {"type": "integer"}, '
    '"up": {"type": "boolean"}}, "required": ["server", "port", "up"], "additionalProperties": false}'
)

CountTokens = Callable[[Prompt], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Case:
    """One conversation and how its tokens are chosen.

    Attributes:
        name: kind of prompt, way of choosing, number.
        tokens: prompt and answers of the whole conversation together at most; a smaller window cannot hold it.
        constraint: what every answer must fit.
    """

    name: str
    script: Script
    sampling: Sampling
    tokens: int
    constraint: Constraint | None = None

    def prompt(self, answers: Sequence[str]) -> Prompt:
        """The prompt of the turn after these answers of the model."""
        says = self.script.says[: len(answers) + 1]
        if self.script.form == "raw":
            between = zip(says, [*answers, ""], strict=True)
            return RawText("".join(f"{said}{answer}" for said, answer in between))
        items: list[Message] = []
        for said, answer in zip(says, [*answers, None], strict=True):
            items.append(Message("user", said))
            if answer is not None:
                items.append(Message("assistant", answer))
        return Conversation(tuple(items))


@dataclass(frozen=True, slots=True)
class _Way:
    """One way of choosing tokens."""

    name: str
    sampling: Sampling
    constraint: Constraint | None = None


def _ways(draw: random.Random) -> tuple[_Way, ...]:
    """Every way of choosing tokens."""
    seed = draw.randrange(2**53)
    greedy = Sampling(temperature=0.0, seed=seed)
    sampled = Sampling(temperature=0.8, seed=seed)
    biases = tuple((draw.randrange(_BIASED_BELOW), draw.choice([-100.0, -3.0, 2.0, 4.0])) for _ in range(24))
    return (
        _Way("greedy", greedy),
        _Way("sampled", sampled),
        _Way("greedy, logprobs", replace(greedy, logprobs=5)),
        _Way("top_p", replace(sampled, temperature=1.2, top_p=0.85)),
        _Way("n = 3", replace(sampled, n=3)),
        _Way("JSON schema", greedy, JsonSchema(_SCHEMA)),
        _Way("penalties", replace(greedy, presence_penalty=0.6, frequency_penalty=0.4)),
        _Way("stop strings", replace(greedy, stop=(draw.choice(["\n\n", "self", ". ", "0"]), "🙂🙂"))),
        _Way("cool, past the end of text", replace(sampled, temperature=0.3, ignore_eos=True)),
        _Way("logit_bias", replace(greedy, logit_bias=biases)),
        _Way("any JSON object, sampled", sampled, JsonObject()),
        _Way("top_k, min_p", replace(sampled, temperature=1.0, top_k=40, min_p=0.05)),
        _Way("repetition penalty, logprobs, n = 2", replace(sampled, repetition_penalty=1.15, logprobs=2, n=2)),
    )


async def cases(number: int, seed: int, count_tokens: CountTokens, windows: Sequence[int]) -> list[Case]:
    """So many cases; the last few fill the given windows to the last token, one case for each.

    Kinds and ways have coprime numbers, so that every pair of them comes up once in kinds times ways cases.
    """
    draw = random.Random(seed)
    made: list[Case] = []
    edges = [await _edge(draw, window, count_tokens) for window in windows]
    for at in range(max(0, number - len(edges))):
        kinds, ways = scripts(draw), _ways(draw)
        script, way = kinds[at % len(kinds)], ways[at % len(ways)]
        sampling = replace(way.sampling, max_tokens=draw.randint(SHORTEST_ANSWER, LONGEST_ANSWER))
        case = await _case(f"{script.kind}, {way.name}, no. {at + 1}", script, sampling, count_tokens)
        made.append(replace(case, constraint=way.constraint))
    for edge in edges[:number]:
        made.append(replace(edge, name=f"{edge.name}, no. {len(made) + 1}"))
    return made


async def _case(name: str, script: Script, sampling: Sampling, count_tokens: CountTokens) -> Case:
    case = Case(name, script, sampling, 0)
    # Answers are not known yet; as text again they may take more tokens than they were made of, hence the room.
    turns = len(script.says)
    bare = await count_tokens(case.prompt([""] * (turns - 1)))
    answers = turns * (sampling.max_tokens or 0)
    return replace(case, tokens=bare + (answers if turns == 1 else 2 * answers))


async def _edge(draw: random.Random, window: int, count_tokens: CountTokens) -> Case:
    """A prompt that leaves a few tokens of the window, and an answer that takes exactly those."""
    code = source_piece(draw, 12)
    text = code + "\n"
    while (count := await count_tokens(RawText(text))) < window:
        text *= 2
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if await count_tokens(RawText(text[:middle])) <= window - _EDGE_ROOM else (low, middle - 1)
        )
    text = text[:low]
    count = await count_tokens(RawText(text))
    sampling = Sampling(temperature=0.0, seed=1, max_tokens=window - count, ignore_eos=True)
    return Case(f"window of {window} filled", Script("window's edge", "raw", (text,)), sampling, window)


def digest(made: Sequence[Case]) -> str:
    """SHA-256 of the cases in hex: the same for everybody who proves with this seed, number and model."""
    return hashlib.sha256("\n".join(map(repr, made)).encode()).hexdigest()
