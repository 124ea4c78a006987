"""The engine protocol: a generation goes in, a stream of events comes out.

An engine knows conversations, samplings and gears; it knows no wire format. Events arrive in batches, one
batch per engine step, so that everything a step produced for a turn can leave in one write.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gearshift.caller import NO_WORK, Caller, Work
from gearshift.catalog import GearName, ModelEntry
from gearshift.conversation import Prompt, Tool, ToolCall


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. Defaults are those of the OpenAI API.

    Attributes:
        max_tokens: most tokens to produce per choice; None means up to the end of the window.
        temperature: 0 is greedy.
        top_k: 0 means all.
        logit_bias: added to the logits of token ids.
        seed: None means that the engine draws one and reports it.
        stop: texts that end a choice; neither they nor what follows is returned.
        logprobs: None for none, else how many alternatives (0 to 20) to report beside the chosen token.
        ignore_eos: go on after an end-of-text token (load tools use it).
        n: number of choices, all from one prompt.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    ignore_eos: bool = False
    n: int = 1


Drafts = Literal["off", "cold", "warm"]
"""Where drafts may come from: nowhere; its own prompt, answer and prediction; the caller's recent answers too."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer is a JSON value that fits a schema.

    Attributes:
        schema: its JSON text, an object.
        strict: refuse a schema of which not everything is supported, instead of leaving those parts out.
    """

    schema: str
    strict: bool = True


@dataclass(frozen=True, slots=True)
class JsonObject:
    """The answer is any JSON object."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The answer fits a grammar in llguidance's dialect of Lark."""

    lark: str


@dataclass(frozen=True, slots=True)
class Calls:
    """The answer is text or, from where one begins, calls of tools that fit their schemas and grammars.

    Attributes:
        choice: `auto`, `required` (one at least, and no text), or the name of the one tool that must be called.
        parallel: several calls may follow each other; never when one is named.
        text: what the answer must fit if it is no call.
    """

    tools: tuple[Tool, ...]
    choice: str = "auto"
    parallel: bool = True
    text: JsonSchema | JsonObject | None = None


Constraint = JsonSchema | JsonObject | Grammar | Calls
"""What every choice of a turn must fit, as far as it comes before the token limit."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One turn as an engine takes it."""

    turn_id: str
    model: str
    prompt: Prompt
    sampling: Sampling
    caller: Caller
    gear: GearName = "standard"
    echo: bool = False
    """Give the prompt's own text back in front of the answer (legacy completions)."""
    gear_fallback: bool = False
    """Whether a lower gear may serve the turn when all seats of its own are taken."""
    prediction: str = ""
    """Text that the answer is likely to repeat; drafts may be taken from it."""
    drafts: Drafts = "warm"
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its log-probability under the model itself (before temperature, penalties and masks)."""

    token_id: int
    token: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The turn was admitted: sent once, before any delta.

    `seed` is the one asked for, or else a drawn one below 2**53, which every JSON client can send back unharmed.
    """

    prompt_tokens: int
    cached_tokens: int
    seed: int
    gear: GearName


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of one choice: whole UTF-8 characters. `text` may be empty while a character or a possible
    stop string is incomplete; `token_ids` then still names the tokens that were produced. The last
    `kept` of them were drafted: they came in the same step as the token before them."""

    choice: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    kept: int = 0


@dataclass(frozen=True, slots=True)
class ChoiceEnd:
    """A choice is complete. `completion_tokens` counts its produced tokens, end-of-text included."""

    choice: int
    reason: Literal["stop", "length"]
    completion_tokens: int
    stop_text: str | None = None
    work: Work = NO_WORK


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a tool. Sent as soon as it is whole; not `whole` when the answer ended inside it."""

    choice: int
    call: ToolCall
    whole: bool = True


EngineEvent = Started | Delta | Called | ChoiceEnd
"""Calls are read out of the text above the engine, where the turn has tools."""


class BatchStream(Protocol):
    """Batches of one turn's events; an async generator is one."""

    def __aiter__(self) -> AsyncIterator[Sequence[EngineEvent]]: ...

    def __anext__(self) -> Awaitable[Sequence[EngineEvent]]: ...

    def aclose(self) -> Awaitable[None]: ...


class EngineFailure(Exception):
    """Something in the engine broke; the turn cannot go on."""


class InvalidGeneration(ValueError):
    """The generation asks for something impossible. `param` names the offending field in our words."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextOverflow(InvalidGeneration):
    """Prompt, or prompt plus demanded output, does not fit into the window."""

    def __init__(self, prompt_tokens: int, max_tokens: int | None, context_window: int) -> None:
        asked = f"{prompt_tokens} in the prompt" + (f" and {max_tokens} for the answer" if max_tokens else "")
        super().__init__(
            f"This model's context window is {context_window} tokens, but {asked} were requested. "
            "Shorten the prompt or lower the output limit.",
            "prompt",
        )
        self.prompt_tokens = prompt_tokens
        self.context_window = context_window


class Overloaded(Exception):
    """The engine can take no more turns now. `retry_after_s` says when to come back."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What an engine is doing now, for /metrics and the console."""

    running: int
    waiting: int
    cache_tokens_used: int
    cache_tokens_total: int
    steps: int = 0
    step_seconds: Sequence[float] = field(default=())
    """Durations of the steps since the last call, oldest first."""
    step_rows: Sequence[int] = field(default=())
    """Rows of the same steps."""
    preempted: int = 0
    """Times that a sequence gave up its cache blocks for others, since the start."""


class Engine(Protocol):
    """What the service needs of an engine."""

    def models(self) -> Sequence[ModelEntry]:
        """The models that this engine serves."""
        ...

    def generate(self, generation: Generation) -> BatchStream:
        """Run one turn. Yields one batch of events per engine step. Closing the iterator (`aclose`), or
        cancelling the task that reads it, frees the turn's rows at the next step.

        Raises (from the first `__anext__`): InvalidGeneration, ContextOverflow, Overloaded, EngineFailure;
        later only EngineFailure.
        """
        ...

    async def count_tokens(self, model: str, prompt: Prompt) -> int:
        """Tokens of the prompt as the engine would render it."""
        ...

    def status(self) -> EngineStatus:
        """A snapshot; cheap, callable from any thread."""
        ...

    async def close(self) -> None:
        """Stop now: running turns fail with EngineFailure."""
        ...
