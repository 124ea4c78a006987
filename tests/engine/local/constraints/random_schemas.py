"""Random JSON schemas out of the subset that is served, small enough that answers to them become complete."""

from __future__ import annotations

import random
from typing import Any

_WORDS = ["name", "count", "größe", "a b", 'say "hi"', "tags", "x", "🙂", "on/off", "line\nbreak"]
_VALUES: list[Any] = [*_WORDS, 1, -2.5, None, True, [1, "x"], {"a": {}}]
_PATTERNS = ["^[a-z]{1,6}$", "^(ab|cd)*e$", "^[0-9]{4}-[0-9]{2}$", "^.{0,5}$"]


def random_schema(draw: random.Random, depth: int = 3) -> dict[str, Any]:
    """A schema that some value fits."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern"]
    kind = draw.choice(kinds + ["object", "array", "anyOf", "ref"] * 2 if depth else kinds)
    match kind:
        case "string":
            least = draw.randrange(3)
            return {"type": "string", "minLength": least, "maxLength": least + draw.randrange(8)}
        case "pattern":
            return {"type": "string", "pattern": draw.choice(_PATTERNS)}
        case "integer":
            least = draw.randrange(-1000, 1000)
            return {"type": "integer", "minimum": least, "maximum": least + draw.randrange(5000)}
        case "number":
            return {"type": "number", "minimum": -2.5, "exclusiveMaximum": draw.choice([0, 1.25, 300])}
        case "enum":
            return {"enum": draw.sample(_VALUES, draw.randrange(1, 6))}
        case "const":
            return {"const": draw.choice([0, "const", [None, {"deep": [1, 2]}], {"a": 1, "b": "c"}])}
        case "array":
            least = draw.randrange(3)
            items = random_schema(draw, depth - 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + draw.randrange(3)}
        case "object":
            names = draw.sample(_WORDS, draw.randrange(5))
            properties = {name: random_schema(draw, depth - 1) for name in names}
            required = [name for name in names if draw.random() < 0.7]
            return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        case "anyOf":
            return {"anyOf": [random_schema(draw, depth - 1) for _ in range(draw.randrange(1, 4))]}
        case "ref":
            node = random_schema(draw, depth - 1)
            tree = {"type": "array", "maxItems": 2, "items": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}
            if draw.random() < 0.5 or "$defs" in str(node):
                return node
            return {"$defs": {"tree": tree}, "$ref": "#/$defs/tree"} if depth == 3 else node
        case _:
            return {"type": kind}
