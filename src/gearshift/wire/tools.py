"""Tools as requests describe them, and what they mean for a turn: functions with a JSON schema, custom tools with free
text or a grammar, and which of them may or must be called.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from gearshift.conversation import Tool
from gearshift.engine.protocol import Calls, Constraint, JsonObject, JsonSchema
from gearshift.wire.decode import decode
from gearshift.wire.errors import invalid

ToolName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]


class FunctionDefinition(msgspec.Struct):
    """A function. Without `strict`, what is not supported of its schema is left out instead of refused."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextInput(msgspec.Struct, tag_field="type", tag="text"):
    """A custom tool takes any text."""


class GrammarDefinition(msgspec.Struct):
    """What the text of a custom tool fits."""

    syntax: Literal["lark", "regex"]
    definition: str


class FlatGrammar(GrammarDefinition, tag_field="type", tag="grammar"):
    """A custom tool takes a text that fits a grammar, as the responses endpoint says it."""


class NestedGrammar(msgspec.Struct, tag_field="type", tag="grammar"):
    """The same, as chat says it."""

    grammar: GrammarDefinition


class CustomDefinition(msgspec.Struct):
    """A tool that takes text."""

    name: ToolName
    description: str | None = None
    format: TextInput | NestedGrammar | None = None


class ChatFunction(msgspec.Struct, tag_field="type", tag="function"):
    """A function, as chat describes it."""

    function: FunctionDefinition


class ChatCustom(msgspec.Struct, tag_field="type", tag="custom"):
    """A custom tool, as chat describes it."""

    custom: CustomDefinition


class FlatFunction(FunctionDefinition, tag_field="type", tag="function"):
    """A function, as the responses endpoint describes it."""


class FlatCustom(msgspec.Struct, tag_field="type", tag="custom"):
    """A custom tool, as the responses endpoint describes it."""

    name: ToolName
    description: str | None = None
    format: TextInput | FlatGrammar | None = None


class Named(msgspec.Struct):
    """A tool by its name."""

    name: str


class ChatFunctionChoice(msgspec.Struct, tag_field="type", tag="function"):
    """The function that must be called, as chat says it."""

    function: Named


class ChatCustomChoice(msgspec.Struct, tag_field="type", tag="custom"):
    """The custom tool that must be called, as chat says it."""

    custom: Named


class FunctionChoice(Named, tag_field="type", tag="function"):
    """The function that must be called, as the responses endpoint says it."""


class CustomChoice(Named, tag_field="type", tag="custom"):
    """The custom tool that must be called, as the responses endpoint says it."""


ChatTool = ChatFunction | ChatCustom
ResponseTool = FlatFunction | FlatCustom
Mode = Literal["none", "auto", "required"]
ChatChoice = Mode | ChatFunctionChoice | ChatCustomChoice
ResponseChoice = Mode | FunctionChoice | CustomChoice


class _Typed(msgspec.Struct):
    type: str


_typed = msgspec.json.Decoder(_Typed)
_served: dict[str, msgspec.json.Decoder[ResponseTool]] = {
    "function": msgspec.json.Decoder(FlatFunction),
    "custom": msgspec.json.Decoder(FlatCustom),
}
TOOL_SCHEMA: dict[str, Any] = {
    "anyOf": [
        *({"$ref": f"#/components/schemas/{tool.__name__}"} for tool in (FlatFunction, FlatCustom)),
        {
            "type": "object",
            "properties": {"type": {"type": "string", "not": {"enum": list(_served)}}},
            "required": ["type"],
            "description": "A tool of any other type is not offered to the model.",
        },
    ]
}


def served_tools(raw: Sequence[Raw]) -> list[ResponseTool]:
    """The tools that are served, in the order of a response request. Those of other types are run by the server that
    offers them, and agents list them always: here they are left out, and the response shows which were taken."""
    found: list[ResponseTool] = []
    seen: set[bytes] = set()
    for index, one in enumerate(raw):
        path = f"tools[{index}]"
        if (text := bytes(one)) in seen:
            raise invalid("The same tool is there twice; leave one of them out.", path)
        seen.add(text)
        if decoder := _served.get(decode(_typed, one, path).type):
            found.append(decode(decoder, one, path))
    return found


def tools_of(tools: Sequence[ChatTool | ResponseTool]) -> tuple[Tool, ...]:
    """The tools in our words. Raises WireError for two of one name."""
    found: dict[str, Tool] = {}
    for index, asked in enumerate(tools):
        tool = _tool(asked)
        if tool.name in found:
            raise invalid(f"Two tools are named {tool.name!r}; give each its own name.", f"tools[{index}]")
        found[tool.name] = tool
    return tuple(found.values())


def calls_of(
    tools: tuple[Tool, ...],
    choice: ChatChoice | ResponseChoice | None,
    parallel: bool | None,
    text: Constraint | None,
) -> Constraint | None:
    """What the answer is held to: the calls that may be made, or `text` alone where none may. Raises WireError."""
    match choice:
        case None | "auto" | "none" | "required":
            wanted = choice or "auto"
        case ChatFunctionChoice(function):
            wanted = function.name
        case ChatCustomChoice(custom):
            wanted = custom.name
        case FunctionChoice(name) | CustomChoice(name):
            wanted = name
    if wanted not in ("auto", "none", "required", *(tool.name for tool in tools)):
        raise invalid(f"There is no tool {wanted!r} to be called; describe it in 'tools'.", "tool_choice")
    if wanted == "required" and not tools:
        raise invalid("A call is required, but there are no tools; describe them in 'tools'.", "tool_choice")
    if wanted == "none" or not tools:
        return text
    return Calls(tools, wanted, parallel is not False, text if isinstance(text, JsonSchema | JsonObject) else None)


def _tool(asked: ChatTool | ResponseTool) -> Tool:
    match asked:
        case ChatFunction(function):
            return _function(function)
        case FlatFunction():
            return _function(asked)
        case ChatCustom(custom):
            grammar = custom.format.grammar if isinstance(custom.format, NestedGrammar) else None
            return Tool(custom.name, custom.description or "", "custom", grammar=_lark(grammar))
        case FlatCustom():
            grammar = asked.format if isinstance(asked.format, FlatGrammar) else None
            return Tool(asked.name, asked.description or "", "custom", grammar=_lark(grammar))


def _function(asked: FunctionDefinition) -> Tool:
    schema = "" if asked.parameters is None else msgspec.json.encode(asked.parameters).decode()
    return Tool(asked.name, asked.description or "", "function", schema, strict=bool(asked.strict))


def _lark(grammar: GrammarDefinition | None) -> str:
    if grammar is None:
        return ""
    if grammar.syntax == "lark":
        return grammar.definition
    pattern = re.sub(r"(?<!\\)/", r"\/", grammar.definition).replace("\n", r"\n")
    return f"start: /{pattern}/"
