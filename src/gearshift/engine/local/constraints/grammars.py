"""The grammars of one model: a constraint compiled over its tokens, with limits on time and size.

The table of tokens is made once, when the first constraint comes: 0.5 s for 49,152 tokens, 4 s for 262,144. It and
every grammar are made on a thread of its own, so that neither the streams nor the event loop wait for a schema that
was made to take long.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Lock
from typing import Any

import llguidance

from gearshift.conversation import Tool
from gearshift.engine.local.constraints.calls import ANY_OBJECT, grammar_of_calls, offered
from gearshift.engine.local.constraints.matcher import Matcher
from gearshift.engine.protocol import Calls, Constraint, Grammar, InvalidGeneration, JsonObject, JsonSchema, Overloaded

MOST_CHARACTERS = 128 * 1024
"""Longest schema or grammar: larger ones take seconds to compile."""

PATIENCE_S = 10.0
"""A grammar that takes longer to compile is refused."""

_WHITESPACE = r" |\n {0,32}"
"""Between the parts of a JSON text: enough for any indentation, too little to go on for ever."""

_LIMITS = llguidance.LLParserLimits(max_items_in_row=10_000, verbose_errors=False)
"""Room for some 2,000 optional properties of one object; such a schema takes a second to compile."""

Tokenize = Callable[[str], Sequence[int]]
"""Token ids of a text that goes on behind other text."""


class _Tokens(llguidance.TokenizerWrapper):
    """A vocabulary as llguidance reads it."""

    def __init__(self, pieces: Sequence[bytes], ends: frozenset[int], tokenize: Tokenize) -> None:
        self._tokenize = tokenize
        self.is_tokenizer_wrapper = True
        self.bos_token_id = None
        self.eos_token_id = min(ends)
        self.tokens = [b"" if token in ends else piece for token, piece in enumerate(pieces)]
        self.special_token_ids = [token for token, piece in enumerate(self.tokens) if not piece]

    def __call__(self, s: str) -> list[int]:
        """Tokens with exactly the bytes of a text: masks would be wrong where some are missing."""
        tokens, data = list(self._tokenize(s)), s.encode()
        return tokens if b"".join(self.tokens[token] for token in tokens) == data else self._longest_first(data)

    def _longest_first(self, data: bytes) -> list[int]:
        tokens: list[int] = []
        while data:
            length = next((n for n in range(min(len(data), self._longest), 0, -1) if data[:n] in self._token_of), 0)
            if not length:
                raise ValueError(f"the vocabulary has no token for the byte {data[0]}")
            tokens.append(self._token_of[data[:length]])
            data = data[length:]
        return tokens

    @cached_property
    def _token_of(self) -> dict[bytes, int]:
        return {piece: token for token, piece in enumerate(self.tokens) if piece}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._token_of))


class Grammars:
    """Compiles constraints for one model. Thread-safe."""

    def __init__(self, pieces: Sequence[bytes], ends: frozenset[int], tokenize: Tokenize) -> None:
        """pieces: the bytes of every token id. ends: ids that end a text."""
        self._pieces = pieces
        self._ends = ends
        self._tokenize = tokenize
        self._tokens: llguidance.LLTokenizer | None = None
        self._lock = Lock()
        self._worker = ThreadPoolExecutor(1, "gearshift-grammars")

    async def compiled(self, constraint: Constraint) -> Matcher:
        """The matcher of an answer that has no tokens yet.

        Raises:
            InvalidGeneration: the constraint is wrong, too large, or asks for something that is not supported.
            Overloaded: others' grammars are being compiled, and it was not its turn in time.
        """
        # The first one waits for the table of tokens, which is not its fault.
        await asyncio.get_running_loop().run_in_executor(self._worker, self._table)
        future = self._worker.submit(self.compile, constraint)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError:
            if future.cancel():
                raise Overloaded("Other schemas are being compiled; try again later.", PATIENCE_S) from None
            raise InvalidGeneration(
                f"{_named(constraint)} takes longer than {PATIENCE_S:g} s to compile. Make it simpler.", "constraint"
            ) from None

    def compile(self, constraint: Constraint) -> Matcher:
        """The same on the calling thread. Raises InvalidGeneration."""
        try:
            grammar = _grammar(constraint)
        except RecursionError:
            raise InvalidGeneration(_said(constraint, "it is nested too deeply"), _param(constraint)) from None
        found = llguidance.LLMatcher(self._table(), grammar, log_level=0, limits=_LIMITS)
        matcher = Matcher(found, self._ends, len(self._pieces))
        if not matcher.problem:
            matcher.masks(())  # some problems show only when the first token is asked for
        if matcher.problem:
            if isinstance(constraint, Calls) and len(constraint.tools) > 1:
                for tool in constraint.tools:  # find the one at fault
                    self.compile(Calls((tool,), "required"))
            raise InvalidGeneration(_said(constraint, matcher.problem), _param(constraint))
        return matcher

    def _table(self) -> llguidance.LLTokenizer:
        with self._lock:
            if self._tokens is None:
                if not self._ends:
                    raise InvalidGeneration(
                        "This model has no token that ends a text, so its answers cannot be constrained.", "constraint"
                    )
                self._tokens = llguidance.LLTokenizer(
                    _Tokens(self._pieces, self._ends, self._tokenize),
                    eos_token=sorted(self._ends),
                    slices=llguidance.LLTokenizer.json_slices(),
                )
            return self._tokens


def _grammar(constraint: Constraint) -> str:
    _check_size(constraint)
    match constraint:
        case Grammar(lark):
            return llguidance.LLMatcher.grammar_from_lark(lark)
        case JsonObject() | JsonSchema():
            return json.dumps({"grammars": [_json_part(constraint)]})
        case Calls(tools=tools, text=text):
            if not tools:
                raise InvalidGeneration("There are no tools to be called.", "tools")
            parts = [_tool_part(tool) for tool in offered(constraint)]
            return grammar_of_calls(constraint, None if text is None else _json_part(text), parts)


def _tool_part(tool: Tool) -> dict[str, Any]:
    if tool.kind == "custom":
        return {"lark_grammar": tool.grammar} if tool.grammar else {}
    part = _json_part(JsonSchema(tool.parameters or ANY_OBJECT, tool.strict))
    part["json_schema"] = {"type": "object"} | part["json_schema"]
    return part


def _json_part(constraint: JsonSchema | JsonObject) -> dict[str, Any]:
    schema = constraint if isinstance(constraint, JsonSchema) else JsonSchema(ANY_OBJECT)
    try:
        value: Any = json.loads(schema.schema)
    except (ValueError, RecursionError) as error:
        raise InvalidGeneration(_said(constraint, f"it is not JSON ({error})"), "constraint") from None
    if not isinstance(value, dict):
        raise InvalidGeneration(_said(constraint, "it is not a JSON object"), "constraint")
    options: dict[str, Any] = {
        "item_separator": ",",
        "key_separator": ":",
        "whitespace_flexible": True,
        "whitespace_pattern": _WHITESPACE,
        "coerce_one_of": not schema.strict,
        "lenient": not schema.strict,
    }
    return {"json_schema": {**value, "x-guidance": options}}


def _check_size(constraint: Constraint) -> None:
    match constraint:
        case Grammar(lark):
            size = len(lark)
        case JsonSchema(schema):
            size = len(schema)
        case JsonObject():
            size = 0
        case Calls(tools=tools):
            size = sum(len(tool.name) + len(tool.parameters) + len(tool.grammar) for tool in tools)
    if size > MOST_CHARACTERS:
        raise InvalidGeneration(
            f"{_named(constraint)} has {size} characters; at most {MOST_CHARACTERS} are supported.", _param(constraint)
        )


def _named(constraint: Constraint) -> str:
    match constraint:
        case Grammar():
            return "The grammar"
        case JsonSchema() | JsonObject():
            return "The JSON schema"
        case Calls(tools=[tool]):
            return f"The {'schema' if tool.kind == 'function' else 'grammar'} of the tool {tool.name!r}"
        case Calls():
            return "The description of all tools together"


def _param(constraint: Constraint) -> str:
    return "tools" if isinstance(constraint, Calls) else "constraint"


def _said(constraint: Constraint, problem: str) -> str:
    lines = [line for line in problem.splitlines() if line.strip() and line.strip() != "<non-verbose/>"]
    return f"{_named(constraint)} cannot be served: {' '.join(lines)[:500]}."
