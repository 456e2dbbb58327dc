"""The ASGI application: which path leads where."""

from __future__ import annotations

import time
from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headway.config import Settings
from headway.errors import HeadwayError
from headway.generation.generator import Generator
from headway.server.access import Access
from headway.server.auth import ApiKeys, tenants_by_key
from headway.server.endpoint import JsonEndpoint
from headway.server.errors import (
    error_response,
    on_http_exception,
    on_internal_error,
    problem_of,
)
from headway.server.front import EngineView, Front, MetricsSource
from headway.server.placement import Placement
from headway.server.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from headway.server.routes.chat import answer_chat
from headway.server.routes.completions import answer_completion
from headway.server.routes.health import HealthRoutes
from headway.server.routes.models import ModelRoutes, answer_detokenize, answer_tokenize


def _routes(front: Front) -> list[Route]:
    health, models = HealthRoutes(front), ModelRoutes(front)
    chat = JsonEndpoint(front, ChatRequest, answer_chat)
    completion = JsonEndpoint(front, CompletionRequest, answer_completion)
    tokenize = JsonEndpoint(front, TokenizeRequest, answer_tokenize)
    detokenize = JsonEndpoint(front, DetokenizeRequest, answer_detokenize)
    return [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", completion, methods=["POST"]),
        Route("/v1/models", models.index),
        Route("/v1/models/{model:path}", models.show),
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/livez", health.livez),
        Route("/readyz", health.readyz),
        Route("/ready", health.readyz),
        Route("/health", health.readyz),
        Route("/load", health.load),
        Route("/metrics", health.metrics),
        Route("/version", health.version),
    ]


def create_app(
    generators: Mapping[str, Generator],
    engine: EngineView,
    metrics: MetricsSource,
    settings: Settings,
) -> ASGIApp:
    """Build the application.

    Args:
        generators: the served models by name; the first also serves requests that name none.
        engine: what the health endpoints look at.
        metrics: what ``/metrics`` renders; HTTP requests are counted there.
        settings: limits, keys and time-outs of the HTTP side; classes and tenants.
    """
    server = settings.server
    placement = Placement(settings)
    front = Front(generators, engine, metrics, server, placement, int(time.time()))

    async def on_headway_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HeadwayError)
        return error_response(request.scope, problem_of(error))

    handlers = {
        HTTPException: on_http_exception,
        HeadwayError: on_headway_error,
        Exception: on_internal_error,
    }
    routes = _routes(front)
    starlette = Starlette(routes=routes, exception_handlers=handlers)
    starlette.router.redirect_slashes = False  # a path with a slash too much does not exist
    app: ASGIApp = starlette
    tenants = tenants_by_key(settings)
    if tenants:
        app = ApiKeys(app, tenants)
    return Access(app, metrics, [route.path for route in routes], server.access_log)
