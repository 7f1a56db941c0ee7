"""The paths that Chariot requires of an engine in every protocol: inference, readiness and liveness.

The platform calls ``/v2/models/m-<id>/infer/``. Its own public engines serve ``/infer`` and ``/ready`` at the root.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.models.registry import CHARIOT_PREFIX
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, StartCall, json_response

__all__ = ("InferenceRoute", "chariot_endpoints", "resolve_model")

_MODEL = "/v2/models/{target:str}"
_VERSION = f"{_MODEL}/versions/{{version:str}}"


def resolve_model(engine: Engine, target: str, version: str | None = None) -> tuple[str, str | None]:
    """Return the name of the model that a path means, and its version if given; bare paths mean the default model.

    Raises:
        InferenceError: MODEL_NOT_FOUND.
    """
    return (engine.registry.name_for_path(target), version) if target else (engine.registry.default_name(), None)


class _Status(msgspec.Struct, frozen=True):
    status: str


class _ModelReady(msgspec.Struct, frozen=True):
    name: str
    ready: bool


class InferenceRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of `Endpoint` that a protocol sets for its inferences."""

    start: StartCall
    body: Any
    answer: Any
    media_types: Sequence[str] = ()


def chariot_endpoints(engine: Engine, inference: InferenceRoute) -> Sequence[Endpoint]:
    """Return the endpoints for `inference` on all of Chariot's paths, and for readiness and liveness."""

    async def ready(_: HttpRequest) -> Response[bytes]:
        if not engine.not_ready_reason:
            return json_response(b'{"status":"ready"}')
        return json_response(msgspec.json.encode({"status": "not ready", "error": engine.not_ready_reason}), status=503)

    async def health(_: HttpRequest) -> Response[bytes]:
        return json_response(b'{"status":"alive"}')

    async def model_ready(request: HttpRequest) -> Response[bytes]:
        name, version = resolve_model(engine, request.path_params.get("target", ""), request.path_params.get("version"))
        engine.ready_model(name, version)
        return json_response(msgspec.json.encode({"name": name, "ready": True}))

    def infer(path: str, summary: str, accepts_target: Callable[[str], bool] | None) -> Endpoint:
        return Endpoint(
            method="POST",
            path=path,
            start=inference.start,
            summary=summary,
            body=inference.body,
            answer=inference.answer,
            media_types=inference.media_types,
            failures=INFER_FAILURES,
            accepts_target=accepts_target,
            permission="infer",
            queue_model=queue_model,
        )

    def queue_model(target: str) -> str:
        return engine.registry.name_for_path(target) if target else engine.registry.default_name()

    def model_readiness(path: str) -> Endpoint:
        return Endpoint(
            method="GET",
            path=path,
            handle=model_ready,
            summary="Whether a model is ready",
            answer=_ModelReady,
            failures=(404, 503),
            accepts_target=_is_chariot,
            permission="infer",
        )

    return [
        infer("/infer", "Infer with the only model, or the default model", None),
        infer(f"{_MODEL}/infer", "Infer with the model of a Chariot id, m-<id>", _is_chariot),
        infer(f"{_VERSION}/infer", "Infer with one version of the model of a Chariot id, m-<id>", _is_chariot),
        Endpoint(
            method="GET",
            path="/ready",
            handle=ready,
            summary="Whether every model is ready",
            answer=_Status,
            failures=(503,),
            permission="open",
        ),
        Endpoint(
            method="GET",
            path="/health",
            handle=health,
            summary="Whether the process is alive",
            answer=_Status,
            permission="open",
        ),
        model_readiness(f"{_MODEL}/ready"),
        model_readiness(f"{_VERSION}/ready"),
    ]


def _is_chariot(target: str) -> bool:
    return target.startswith(CHARIOT_PREFIX)
