"""The paths on which Chariot reaches an engine, the same for each of its protocols.

The platform calls ``/v2/models/m-<id>/infer/``; its own public engines serve ``/infer`` and ``/ready`` at the root.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler

from app.engine.engine import Engine
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("INFER_PATHS", "addressed", "health_handlers")

INFER_PATHS = (
    "/infer",
    "/v2/models/{target:str}/infer",
    "/v2/models/{target:str}/versions/{version:str}/infer",
)

_PREFIX = "m-"


def addressed(engine: Engine, path_parameters: Mapping[str, str]) -> tuple[str, str | None]:
    """The name of the model that a path means, and the version when it gives one; the bare path means the default.

    Raises:
        InferenceError: MODEL_NOT_FOUND.
    """
    target, version = path_parameters.get("target"), path_parameters.get("version")
    if target is None:
        return engine.registry.default_name(), None
    if not target.startswith(_PREFIX):
        message = f"Expected a path of the form /v2/models/m-<id>/infer, got the model {target!r}"
        raise InferenceError(ErrorKind.MODEL_NOT_FOUND, message)
    return engine.registry.name_for_chariot(target.removeprefix(_PREFIX)), version


def health_handlers(engine: Engine) -> Sequence[HTTPRouteHandler]:
    """Readiness of the server and of one model, and liveness."""

    @get("/ready", sync_to_thread=False)
    def ready() -> Response[dict[str, object]]:
        waiting = {
            f"{each.source.name}/{each.source.version}": each.reason
            for each in engine.registry.registrations
            if each.servable is None
        }
        if engine.registry.ready:
            return Response({"status": "ready"})
        return Response({"status": "not ready", "error": _sentence(waiting)}, status_code=503)

    @get("/health", sync_to_thread=False)
    def health() -> Response[dict[str, object]]:
        return Response({"status": "alive"})

    @get(
        ["/v2/models/{target:str}/ready", "/v2/models/{target:str}/versions/{version:str}/ready"], sync_to_thread=False
    )
    def model_ready(request: Request[Any, Any, Any]) -> Response[dict[str, object]]:
        name, version = addressed(engine, request.path_params)
        engine.registry.find(name, version)
        return Response({"name": name, "ready": True})

    return [ready, health, model_ready]


def _sentence(waiting: dict[str, str]) -> str:
    if not waiting:
        return "The server has no models"
    return "; ".join(f"{model}: {reason}" for model, reason in sorted(waiting.items()))
