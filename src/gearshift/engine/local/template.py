"""Chat templates: strangers' code from a model file, run in jinja2's immutable sandbox under limits.

The dialect is that of Hugging Face (trimmed blocks, `raise_exception`, `strftime_now`, `tojson`, break and continue).
A budget of steps, characters and time holds for every run: loops, calls, joined and repeated text, JSON and filters
all draw on it, so a template that would run or grow without end stops with an error. Which messages it gets is
`messages.py`'s subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, cast

from jinja2 import TemplateError as JinjaError
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from gearshift.engine.local import template_filters
from gearshift.engine.local.template_filters import Budget, TemplateProblem

MAX_SOURCE = 1 << 18
"""Longest template in characters; the longest real ones have some 20,000."""
_STR_METHODS = frozenset(
    (
        *("strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "partition", "rpartition", "join", "replace"),
        *("startswith", "endswith", "removeprefix", "removesuffix", "upper", "lower", "title", "capitalize", "find"),
        *("rfind", "index", "rindex", "count", "isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower"),
    )
)
"""Methods of texts that templates may call: none that pads or formats to a size of the template's choice."""


class TemplateRefusal(TemplateProblem):
    """The template itself refuses the messages, through `raise_exception`."""


class ChatTemplate:
    """A compiled template. Thread-safe.

    Attributes:
        source: its text.
    """

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        """names: texts such as `bos_token` that the template may use.

        Raises TemplateProblem: the template is too long or cannot be compiled.
        """
        if len(source) > MAX_SOURCE:
            raise TemplateProblem(f"has {len(source)} characters; expected at most {MAX_SOURCE}")
        self.source = source
        self._names = dict(names)
        budget = Budget()
        token = _running.set(budget)
        try:
            environment = _Environment()
            tree = _Limits(environment).visit(environment.parse(source))
            code = environment.compile(tree)
            self._template = environment.template_class.from_code(environment, code, environment.globals.copy())
        except (JinjaError, SyntaxError, RecursionError, MemoryError, ValueError, OverflowError) as error:
            raise TemplateProblem(f"cannot be compiled: {_short(error)}") from None
        finally:
            _running.reset(token)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        now: datetime,
        answer: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The prompt's text. `now` is what `strftime_now` shows; `answer` asks for the head of the answer too.

        Raises:
            TemplateRefusal: the template refuses these messages.
            TemplateProblem: it fails, or exceeds its limits.
        """
        budget = Budget()
        token = _running.set(budget)
        parts: list[str] = []
        try:
            for part in self._template.generate(
                **self._names,
                messages=messages,
                add_generation_prompt=answer,
                tools=tools,
                documents=None,
                strftime_now=_clock(now),
            ):
                budget.spend(0, len(part))
                parts.append(part)
        except TemplateProblem:
            raise
        except (JinjaError, RecursionError, MemoryError) as error:
            raise TemplateProblem(f"fails: {_short(error)}") from None
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise TemplateProblem(f"fails on these messages: {_short(error)}") from None
        finally:
            _running.reset(token)
        return "".join(parts)


_running: ContextVar[Budget] = ContextVar("running")


def _spend(steps: int, characters: int = 0) -> None:
    _running.get().spend(steps, characters)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox: listed filters and methods only, and every operation that can grow something is checked."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            finalize=_shown,
            optimized=False,
            cache_size=0,
        )
        self.longest_macro = 0
        self.filters = template_filters.listed(self.filters, _running.get)
        self.filters["gearshift_counted"] = _counted
        self.filters["gearshift_joined"] = _joined
        listed: dict[str, Any] = {
            name: self.globals[name] for name in ("range", "dict", "namespace", "cycler", "joiner")
        }
        self.globals = listed | {"raise_exception": _refuse}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, (str, bytes)) and attr not in _STR_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """No stand-in for `str.format`: it is refused like every method that is not listed."""

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        # The odd names are jinja2's own: a template may pass keyword arguments of any name.
        _spend(1, __self.longest_macro if isinstance(__obj, Macro) else 0)
        text: Any = getattr(__obj, "__self__", None)
        if isinstance(text, str):
            name: str = getattr(__obj, "__name__", "")
            template_filters.check_method(_running.get(), text, name, args)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        template_filters.check_operation(_running.get(), operator, left, right)
        return super().call_binop(context, operator, left, right)


class _Limits(NodeTransformer):
    """Rewrites a parsed template so that loops are counted and joined text is measured."""

    def __init__(self, environment: _Environment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:
        # Constant text within the loop is charged at every turn, whichever branch is taken.
        size = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = self._filter(cast(nodes.Expr, node.iter), "gearshift_counted", nodes.Const(size))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        size = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self._environment.longest_macro = max(self._environment.longest_macro, size)
        return self.generic_visit(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        size = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self._environment.longest_macro = max(self._environment.longest_macro, size)
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._filter(nodes.List(node.nodes), "gearshift_joined")

    def _filter(self, node: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
        made = nodes.Filter(node, name, list(args), [], None, None)
        made.set_environment(self._environment)
        made.set_lineno(node.lineno or 1)
        return made


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model wrote, for training; here it is plain text."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it without ClassVar

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _counted(values: Iterable[Any], size: int) -> Iterator[Any]:
    """What a loop goes through, each turn on the budget."""
    if isinstance(values, Undefined):
        return iter(values)
    return _counting(values, size)


def _counting(values: Iterable[Any], size: int) -> Iterator[Any]:
    for value in values:
        _spend(1, size)
        yield value


def _joined(values: Sequence[Any]) -> str:
    """The `~` operator."""
    texts = [template_filters.text_of(_running.get(), value) for value in values]
    _spend(1, sum(map(len, texts)))
    return "".join(texts)


def _shown(value: Any) -> str:
    """What an expression in double braces puts out."""
    text = template_filters.text_of(_running.get(), value)
    _spend(1, len(text))
    return text


def _refuse(message: str) -> None:
    raise TemplateRefusal(f"refuses these messages: {str(message)[:500]}")


def _clock(now: datetime) -> Callable[[str], str]:
    def strftime_now(format: str) -> str:
        # Widths would let a short format make a long text.
        return now.strftime(re.sub(r"%[^a-zA-Z%]*(?=[a-zA-Z%])", "%", str(format)[:200]))

    return strftime_now


def _short(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    line = getattr(error, "lineno", None)
    return text[:300] + (f" (line {line})" if isinstance(line, int) else "")
