"""The OpenAI error object, and how errors of the rooms below become one. Transport sends it; this module knows the
status and the header that go with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.accounts import BooksUnavailable, TankEmpty, Unauthorized
from gearshift.engine.protocol import ContextOverflow, EngineFailure, InvalidGeneration, Overloaded
from gearshift.service import UnknownModel
from gearshift.wire.limits import refusal_headers

ErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "rate_limit_error",
    "usage_limit_reached",
    "server_error",
]


class ErrorObject(msgspec.Struct):
    """What went wrong: `param` is the path of the field at fault, `code` a word for programs. An empty tank says in
    `resets_at` when it refills, in Unix seconds.
    """

    message: str
    type: ErrorType
    param: str | None
    code: str | None
    resets_at: int | UnsetType = UNSET


class ErrorBody(msgspec.Struct):
    """The body of every answer that is not a success."""

    error: ErrorObject


class WireError(Exception):
    """An answer other than success, ready to be sent."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: ErrorType = "invalid_request_error",
        retry_after_s: float | None = None,
        resets_at: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.object = ErrorObject(
            message=message, type=kind, param=param, code=code, resets_at=UNSET if resets_at is None else resets_at
        )
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            # Whole seconds, rounded up: a client that comes back too early only adds to the load.
            self.headers["retry-after"] = str(max(1, math.ceil(retry_after_s)))

    def body(self) -> bytes:
        """The JSON body."""
        return msgspec.json.encode(ErrorBody(self.object))


def invalid(message: str, param: str | None = None, code: str | None = "invalid_value") -> WireError:
    """A 400 for a field that cannot be what it is."""
    return WireError(400, message, param=param, code=code)


def not_served(what: str, param: str, instead: str, *, verb: Literal["is", "are"] = "is") -> WireError:
    """A 400 for something that the API knows and this server does not do; never ignored in silence."""
    return WireError(400, f"{what} {verb} not served here. {instead}", param=param, code="unsupported_value")


def from_below(error: Exception, fields: Mapping[str, str]) -> WireError:
    """The wire's view of an error from the service or an engine.

    fields: our word for a field (`prompt`, `max_tokens`) -> its name in the request at hand.
    """
    match error:
        case WireError():
            return error
        case ContextOverflow():
            return invalid(str(error), fields.get("prompt", "prompt"), "context_length_exceeded")
        case InvalidGeneration():
            return invalid(str(error), fields.get(error.param, error.param) if error.param else None)
        case UnknownModel():
            return WireError(404, str(error), param="model", code="model_not_found")
        case Unauthorized():
            return WireError(
                401,
                str(error),
                code="invalid_api_key",
                kind="authentication_error",
                headers={"www-authenticate": "Bearer"},
            )
        case TankEmpty():
            return WireError(
                429,
                str(error),
                code="usage_limit_reached",
                kind="usage_limit_reached",
                resets_at=error.resets_at,
                headers=refusal_headers(error),
            )
        case BooksUnavailable():
            return WireError(503, str(error), code="books_unavailable", kind="server_error", retry_after_s=5)
        case Overloaded():
            return WireError(
                429, str(error), code="overloaded", kind="rate_limit_error", retry_after_s=error.retry_after_s
            )
        case EngineFailure():
            return WireError(500, f"The engine failed: {error}", code="engine_failure", kind="server_error")
        case _:
            return WireError(500, "The server failed; its log says why.", code="internal_error", kind="server_error")
