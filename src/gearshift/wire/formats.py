"""Formats of an answer as requests ask for them, and what they mean for the engine: free text, any JSON object, or JSON
that fits a schema. Chat and responses differ only in where the schema stands.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gearshift.engine.protocol import Constraint, JsonObject, JsonSchema


class TextFormat(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Free text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class NamedSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """A JSON schema with its name. Without `strict`, what is not supported of it is left out instead of refused."""

    name: str
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class JsonSchemaFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema"):
    """JSON that fits a schema, as chat asks for it."""

    json_schema: NamedSchema


class FlatSchemaFormat(NamedSchema, frozen=True, omit_defaults=True, tag_field="type", tag="json_schema"):
    """JSON that fits a schema, as the responses endpoint asks for it."""


ChatFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat
ResponseFormat = TextFormat | JsonObjectFormat | FlatSchemaFormat


def constraint_of(asked: ChatFormat | ResponseFormat | None) -> Constraint | None:
    """What the engine has to hold the answer to."""
    match asked:
        case None | TextFormat():
            return None
        case JsonObjectFormat():
            return JsonObject()
        case JsonSchemaFormat(json_schema):
            return _constraint_of(json_schema)
        case FlatSchemaFormat():
            return _constraint_of(asked)


def _constraint_of(named: NamedSchema) -> Constraint:
    if named.schema is None:
        return JsonObject()
    return JsonSchema(msgspec.json.encode(named.schema).decode(), strict=bool(named.strict))
