"""The routes of the server, as one ASGI application. What happens behind a route is in the modules named here; what
happens in front of all of them is in `security`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from gearshift.accounts import Unauthorized
from gearshift.caller import Caller
from gearshift.server import openapi
from gearshift.server.body import Bodies
from gearshift.server.limits import LIMITS, Limits
from gearshift.server.metrics import Metrics
from gearshift.server.recall import CallerMemory
from gearshift.server.security import Gate, bearer
from gearshift.server.turns import Reader, TurnEndpoint
from gearshift.server.websocket import ResponsesSocket
from gearshift.service import Service, UnknownModel
from gearshift.stored import StoredResponses
from gearshift.wire.answer import Request as TurnRequest
from gearshift.wire.chat import read_chat
from gearshift.wire.codex import catalogue, etag
from gearshift.wire.completions import read_completion
from gearshift.wire.errors import WireError, from_below
from gearshift.wire.models import model, model_list
from gearshift.wire.responses import Deleted, no_such_response, read_response

_JSON = "application/json"
_PLACES = (
    "This server answers at /v1/chat/completions, /v1/completions, /v1/responses, /v1/models, /healthz and /metrics; "
    "/openapi.json describes them."
)


def build_app(service: Service, metrics: Metrics, hosts: Iterable[str] = (), limits: Limits = LIMITS) -> ASGIApp:
    """The application.

    hosts: names beside loopback ones under which the server may be addressed.
    """
    bodies = Bodies(limits.body_bytes, limits.bodies_bytes)
    stored = StoredResponses()

    def turns(name: str, read: Reader) -> TurnEndpoint:
        return TurnEndpoint(name, read, service, metrics, bodies, limits)

    def respond(body: bytes, caller: Caller) -> TurnRequest:
        return read_response(body, CallerMemory(stored, caller))

    async def stored_response(request: Request) -> Response:
        caller = service.identify(bearer(request.scope))
        response_id = request.path_params["response_id"]
        found = stored.get(caller, response_id)
        if found is None:
            raise no_such_response(response_id)
        if request.method == "DELETE":
            stored.delete(caller, response_id)
            return _json(Deleted(response_id))
        return Response(found.shown, media_type=_JSON)

    async def models(request: Request) -> Response:
        service.identify(bearer(request.scope))
        if "client_version" in request.query_params:
            return _tagged(catalogue(service.models()), request.headers.get("if-none-match", ""))
        return _json(model_list(service.models()))

    async def one_model(request: Request) -> Response:
        service.identify(bearer(request.scope))
        _, entry = service.resolve(request.path_params["model"])
        return _json(model(entry))

    async def exposition(request: Request) -> Response:
        service.identify(bearer(request.scope))
        return Response(metrics.exposition(), headers={"content-type": metrics.content_type})

    async def described(request: Request) -> Response:
        return _json(openapi.document(service.models()))

    starlette = Starlette(
        routes=[
            Route("/v1/chat/completions", turns("chat", _for_anyone(read_chat)), methods=["POST"]),
            Route("/v1/completions", turns("completions", _for_anyone(read_completion)), methods=["POST"]),
            Route("/v1/responses", turns("responses", respond), methods=["POST"]),
            WebSocketRoute("/v1/responses", ResponsesSocket(service, metrics, bodies, stored, limits)),
            Route("/v1/responses/{response_id}", stored_response, methods=["GET", "DELETE"]),
            Route("/v1/models", models),
            Route("/v1/models/{model:path}", one_model),
            Route("/healthz", _healthy),
            Route("/metrics", exposition),
            Route("/openapi.json", described),
        ],
        exception_handlers={
            HTTPException: _http_error,
            Unauthorized: _error_from_below,
            UnknownModel: _error_from_below,
            WireError: _error_from_below,
            Exception: _error_from_below,
        },
    )
    return Gate(starlette, hosts)


async def _healthy(request: Request) -> Response:
    return Response("ok\n", media_type="text/plain")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for this class alone"
    path = request.url.path[:200]
    if error.status_code == 405:
        message = f"{request.method[:20]} is not possible at {path!r}."
        return _error(WireError(405, message, code="method_not_allowed", headers=error.headers))
    message = f"There is nothing at {path!r}. {_PLACES}" if error.status_code == 404 else error.detail
    return _error(WireError(error.status_code, message, code="not_found", headers=error.headers))


async def _error_from_below(request: Request, error: Exception) -> Response:
    return _error(from_below(error, {}))


def _for_anyone(read: Callable[[bytes], TurnRequest]) -> Reader:
    """A reader of bodies that mean the same whoever sends them."""
    return lambda body, caller: read(body)


def _tagged(body: bytes, known: str) -> Response:
    """A body with its ETag, or word that the one which the client knows is still right."""
    tag = etag(body)
    headers = {"etag": tag, "cache-control": "no-cache"}
    if tag in (one.strip() for one in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=_JSON)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type=_JSON)


def _error(error: WireError) -> Response:
    return Response(error.body(), status_code=error.status, headers=error.headers, media_type=_JSON)
