"""The markup of tool calls: `<tool_call>`, a line, `</tool_call>`.

A function's line is a JSON object of its name and arguments, as many templates have it; a custom tool's name stands
alone in a line and free text follows. In either, a line that begins with the end mark ends the call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from gearshift.conversation import Tool, ToolCall

BEGIN = "<tool_call>"
END = "\n</tool_call>"


def json_head(name: str) -> str:
    """What stands in front of the arguments of a function's call; a closing brace follows them."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


def written(call: ToolCall) -> str:
    """A call as the model would have written it, also one that was cut short."""
    if call.kind == "custom":
        return f"{BEGIN}\n{call.name}\n{call.arguments}{END}"
    return f"{BEGIN}\n{json_head(call.name)}{call.arguments or '{}'}}}{END}"


def told(tools: Sequence[Tool]) -> str:
    """The tools in words, for models whose template has none."""
    functions = [tool for tool in tools if tool.kind == "function"]
    customs = [tool for tool in tools if tool.kind == "custom"]
    parts: list[str] = []
    if functions:
        listed = "\n".join(json.dumps(described(tool), ensure_ascii=False) for tool in functions)
        example = f'{BEGIN}\n{{"name": "<function>", "arguments": {{...}}}}{END}'
        parts.append(f"You may call these functions:\n{listed}\nTo call one, write\n{example}")
    for tool in customs:
        about = f": {tool.description}" if tool.description else "."
        form = f"\nThe text fits this grammar:\n{tool.grammar}" if tool.grammar else ""
        parts.append(
            f"You may use the tool {tool.name}{about}{form}\n"
            f"To use it, write\n{BEGIN}\n{tool.name}\n<text for the tool>{END}"
        )
    return "\n\n".join(parts)


def described(tool: Tool) -> dict[str, object]:
    """A function as templates expect it."""
    parameters: object = json.loads(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }
