"""The budget of a chat template's run, and the filters and operations that draw on it.

Everything here answers one question: how large will the result be? It is asked before the result is made.
`template.py` puts these into the sandbox.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from jinja2.runtime import Undefined

MAX_STEPS = 1_000_000
"""Most loop turns, calls and shown expressions of a run."""
MAX_CHARACTERS = 1 << 26
"""Most characters made in a run, all intermediate texts together."""
MAX_SIZE = 1 << 24
"""Largest single text or list."""
MAX_SECONDS = 2.0
"""Longest run in processor time of its thread; a long honest conversation takes some milliseconds."""
_CLOCK_STEPS = 64
_CLOCK_CHARACTERS = 1 << 16
"""How much may be spent between two looks at the clock."""
_MAX_DIGITS = 4000

_FILTERS = frozenset(
    (
        *(
            "abs",
            "capitalize",
            "count",
            "d",
            "default",
            "dictsort",
            "first",
            "float",
            "groupby",
            "int",
            "items",
            "last",
        ),
        *("length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "select"),
        *("selectattr", "sort", "sum", "title", "trim", "unique", "upper", "wordcount"),
    )
)
"""jinja2's own filters whose results are no larger than what goes in."""


class TemplateProblem(Exception):
    """A chat template that cannot be used, fails, or exceeds its limits. The message says which."""


class Budget:
    """What is left for one run."""

    __slots__ = ("_characters", "_end", "_steps", "_unseen")

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._characters = MAX_CHARACTERS
        self._end = time.thread_time() + MAX_SECONDS
        self._unseen = 0

    def spend(self, steps: int, characters: int) -> None:
        """Raises TemplateProblem: the budget is used up."""
        self._steps -= steps
        self._characters -= characters
        if self._steps < 0:
            raise TemplateProblem(f"takes more than {MAX_STEPS} steps")
        if self._characters < 0 or characters > MAX_SIZE:
            raise TemplateProblem(f"makes too much text (more than {MAX_SIZE} characters at once, or {MAX_CHARACTERS})")
        self._unseen += 1
        if self._unseen < _CLOCK_STEPS and characters < _CLOCK_CHARACTERS:
            return
        self._unseen = 0
        if time.thread_time() > self._end:
            raise TemplateProblem(f"computes for more than {MAX_SECONDS:g} seconds")

    def measure(self, value: Any) -> None:
        """Spend what writing out a nested value takes, a part that occurs twice counted twice."""
        waiting: list[Any] = [value]
        while waiting:
            item = waiting.pop()
            self.spend(1, len(item) if isinstance(item, str) else 1)
            if isinstance(item, Mapping):
                pairs = cast("Mapping[Any, Any]", item)
                waiting.extend(pairs.keys())
                waiting.extend(pairs.values())
            elif isinstance(item, (list, tuple, set, frozenset)):
                waiting.extend(cast("Iterable[Any]", item))


def text_of(budget: Budget, value: Any) -> str:
    """A value as text, measured first when it is nested."""
    if not isinstance(value, str):
        budget.measure(value)
    return str(value)


def check_operation(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Before `left operator right`. Raises TemplateProblem when the result would be too large."""
    if operator == "+" and _is_sized(left) and _is_sized(right):
        budget.spend(1, len(left) + len(right))
    elif operator == "*":
        for sized, times in ((left, right), (right, left)):
            if _is_sized(sized) and isinstance(times, int):
                budget.spend(1, len(sized) * max(0, times))
        _check_digits(left, right)
    elif operator == "**":
        if not (isinstance(right, (int, float)) and abs(right) <= 64):
            raise TemplateProblem("raises a number to a power above 64")
        _check_digits(left)
    elif operator == "%" and isinstance(left, str):
        if re.search(r"%[^a-zA-Z%]*(\d{4}|\*)", left):
            raise TemplateProblem("formats a value to a width above 999")
        budget.spend(1, len(left) * 1000 if len(left) < 1000 else len(left))
        budget.measure(right)


def check_method(budget: Budget, text: str, name: str, args: tuple[Any, ...]) -> None:
    """Before a method of a text is called. Raises TemplateProblem when the result would be too large."""
    if name == "replace" and len(args) >= 2:
        _replaced(budget, text, args[0], args[1])
    elif name == "join" and args and _is_sized(args[0]):
        items: list[Any] = list(args[0])
        budget.spend(1, sum(len(item) for item in items if isinstance(item, str)) + len(text) * len(items))
    else:
        budget.spend(1, len(text))


def listed(standard: Mapping[str, Callable[..., Any]], budget: Callable[[], Budget]) -> dict[str, Callable[..., Any]]:
    """The filters that templates may use. `budget` gives that of the current run."""

    def join(value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        found: list[Any] = []
        for item in value:
            budget().spend(1, 0)
            found.append(item if attribute is None else item[attribute])
        texts = [text_of(budget(), item) for item in found]
        budget().spend(1, sum(map(len, texts)) + len(str(d)) * len(texts))
        return str(d).join(texts)

    def replace(s: Any, old: Any, new: Any, count: int | None = None) -> str:
        text = text_of(budget(), s)
        _replaced(budget(), text, old, new)
        return text.replace(str(old), str(new), -1 if count is None else count)

    def indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        lead = width if isinstance(width, str) else " " * min(max(width, 0), 1000)
        lines = text_of(budget(), s).split("\n")
        budget().spend(1, sum(map(len, lines)) + len(lead) * len(lines))
        made = [lead + line if line or blank else line for line in lines[1:]]
        return "\n".join([(lead + lines[0]) if first else lines[0], *made])

    def string(value: Any) -> str:
        return text_of(budget(), value)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        # Text stays as it is whatever `ensure_ascii` says: the marks that protect content must survive.
        if isinstance(value, Undefined):
            raise TemplateProblem("writes an undefined value as JSON")
        budget().measure(value)
        indent = min(indent, 16) if isinstance(indent, int) else None
        return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)

    filters: dict[str, Callable[..., Any]] = {name: standard[name] for name in _FILTERS}
    filters |= {"join": join, "replace": replace, "indent": indent, "string": string, "tojson": tojson}
    # Nothing is escaped here, so nothing needs to be marked as safe.
    return filters | {"safe": string, "e": string, "escape": string}


def _is_sized(value: Any) -> bool:
    return isinstance(value, (str, list, tuple))


def _replaced(budget: Budget, text: str, old: Any, new: Any) -> None:
    found = text.count(str(old))
    budget.spend(1, len(text) + found * len(str(new)))


def _check_digits(*values: Any) -> None:
    for value in values:
        if isinstance(value, int) and value.bit_length() > _MAX_DIGITS:
            raise TemplateProblem(f"calculates with a number of more than {_MAX_DIGITS} bits")
