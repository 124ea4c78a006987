"""The OpenAPI document of this server, made from the structs that really read and write the bodies: it cannot promise a
field that is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

import msgspec

from gearshift import __version__
from gearshift.catalog import ModelEntry
from gearshift.wire.chat import ChatRequest
from gearshift.wire.chat_answer import ChatChunk, ChatCompletion
from gearshift.wire.completions import PROMPT_SCHEMA, CompletionRequest
from gearshift.wire.completions_answer import TextCompletion
from gearshift.wire.errors import ErrorBody
from gearshift.wire.models import Model, ModelList
from gearshift.wire.responses import Deleted, ResponseRequest
from gearshift.wire.responses_items import ITEMS
from gearshift.wire.responses_object import (
    ArgumentsDeltaEvent,
    ArgumentsDoneEvent,
    InputDoneEvent,
    ItemEvent,
    PartEvent,
    ResponseEvent,
    ResponseObject,
    TextDeltaEvent,
    TextDoneEvent,
)
from gearshift.wire.tools import FlatCustom, FlatFunction, Mode

Json = dict[str, Any]

_STREAM_EVENTS = (
    ResponseEvent,
    ItemEvent,
    PartEvent,
    TextDeltaEvent,
    TextDoneEvent,
    ArgumentsDeltaEvent,
    ArgumentsDoneEvent,
    InputDoneEvent,
)
_ROOTS: tuple[type[msgspec.Struct], ...] = (
    ChatRequest,
    ChatCompletion,
    ChatChunk,
    CompletionRequest,
    TextCompletion,
    ResponseRequest,
    ResponseObject,
    Deleted,
    *_STREAM_EVENTS,
    *ITEMS,
    FlatFunction,
    FlatCustom,
    Model,
    ModelList,
    ErrorBody,
)

_REFUSALS = {
    "400": "A field is wrong; `error.param` is its path.",
    "401": "The API key is missing or unknown.",
    "403": "The `Host` or `Origin` is not ours.",
    "404": "There is no such model or response.",
    "413": "The body is too large.",
    "415": "The body is not JSON by its content type.",
    "429": "The gear or the engine is full; `Retry-After` says when to come back.",
    "500": "The engine failed.",
    "503": "The server is shutting down, or holds too many bodies; `Retry-After` says when to come back.",
}


def document(models: Iterable[ModelEntry]) -> Json:
    """The document, ready to be encoded. `models` are the only values that the field of this name takes."""
    _, components = msgspec.json.schema_components(_ROOTS, ref_template="#/components/schemas/{name}")
    names = [name for entry in models for name in (entry.id, *entry.aliases)]
    for request in (ChatRequest, CompletionRequest, ResponseRequest):
        components[request.__name__]["properties"]["model"] = {"enum": names}
    components[CompletionRequest.__name__]["properties"]["prompt"] = PROMPT_SCHEMA
    components[ChatRequest.__name__] |= {
        "if": {"properties": {"top_logprobs": {"type": "integer", "minimum": 1}}, "required": ["top_logprobs"]},
        "then": {"properties": {"logprobs": {"const": True}}, "required": ["logprobs"]},
    }
    for request in (ChatRequest, ResponseRequest):
        # A tool that must be called is one of `tools`, which the schema language cannot say: only words are told.
        components[request.__name__]["properties"]["tool_choice"] = {"enum": [*get_args(Mode), None]}
        required = {"properties": {"tool_choice": {"const": "required"}}, "required": ["tool_choice"]}
        served = {"properties": {"type": {"enum": ["function", "custom"]}}}
        some = {"type": "array", "minItems": 1, "items": served}
        tools = {"properties": {"tools": some}, "required": ["tools"]}
        components[request.__name__]["allOf"] = [{"if": required, "then": tools}]
    # Only the value of `n` is served, which the schema language cannot say: so it is not on offer.
    del components[CompletionRequest.__name__]["properties"]["best_of"]
    # Only ids of responses that are there are served, likewise.
    del components[ResponseRequest.__name__]["properties"]["previous_response_id"]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Gearshift", "version": __version__, "license": {"name": "Apache-2.0"}},
        "security": [{}, {"key": []}],
        "paths": {
            "/v1/chat/completions": _turns("Continue a chat.", ChatRequest, ChatCompletion, ChatChunk),
            "/v1/completions": _turns("Continue a text.", CompletionRequest, TextCompletion, TextCompletion),
            "/v1/responses": _turns("Answer a conversation.", ResponseRequest, ResponseObject, *_STREAM_EVENTS),
            "/v1/responses/{response_id}": {
                "get": _plain_get("A response that was stored.", ResponseObject, "401", "403", "404"),
                "delete": _plain_get("Forget a stored response.", Deleted, "401", "403", "404"),
                "parameters": [{"name": "response_id", "in": "path", "required": True, "schema": {"type": "string"}}],
            },
            "/v1/models": {"get": _plain_get("The models on offer.", ModelList, "401", "403")},
            "/v1/models/{model}": {
                "get": _plain_get("One model.", Model, "401", "403", "404"),
                "parameters": [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}],
            },
            "/healthz": {"get": {"summary": "Whether the server is up.", "responses": _text_answer("text/plain")}},
            "/metrics": {"get": {"summary": "Metrics for Prometheus.", "responses": _text_answer("text/plain")}},
            "/openapi.json": {
                "get": {"summary": "This document.", "responses": _text_answer("application/json", {"type": "object"})}
            },
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "Needed where the server has keys."}
            },
        },
    }


def _turns(summary: str, request: type, answer: type, *events: type) -> Json:
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(request)}}},
            "responses": {
                "200": {
                    "description": "The answer; with `stream`, its events.",
                    "headers": {"x-request-id": {"schema": {"type": "string"}}},
                    "content": {
                        "application/json": {"schema": _ref(answer)},
                        "text/event-stream": {"schema": _event(*events, ErrorBody)},
                    },
                },
                **_errors(*_REFUSALS),
            },
        }
    }


def _event(*data: type) -> Json:
    """One event of a stream: JSON of one of these shapes, or the mark at the end of chat and legacy streams."""
    shapes = {"contentMediaType": "application/json", "contentSchema": {"anyOf": [_ref(shape) for shape in data]}}
    return {
        "type": "object",
        "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
        "required": ["data"],
        "if": {"properties": {"data": {"const": "[DONE]"}}},
        "else": {"properties": {"data": shapes}},
    }


def _plain_get(summary: str, answer: type, *refusals: str) -> Json:
    content = {"application/json": {"schema": _ref(answer)}}
    return {"summary": summary, "responses": {"200": {"description": "It.", "content": content}, **_errors(*refusals)}}


def _text_answer(media: str, schema: Json | None = None) -> Json:
    content = {media: {"schema": schema or {"type": "string"}}}
    return {"200": {"description": "It.", "content": content}, **_errors("401", "403")}


def _errors(*statuses: str) -> Json:
    content = {"application/json": {"schema": _ref(ErrorBody)}}
    return {status: {"description": _REFUSALS[status], "content": content} for status in statuses}


def _ref(struct: type) -> Json:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}
