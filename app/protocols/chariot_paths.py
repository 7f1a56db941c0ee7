"""What Chariot asks of an engine whatever the protocol: where inferences are sent, and who is ready.

The platform calls ``/v2/models/m-<id>/infer/``; its own public engines serve ``/infer`` and ``/ready`` at the root.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.events import Caller
from app.protocols.protocol import INFER_FAILURES, Endpoint, HttpRequest, json_response
from tasks.exchange.error import InferenceError

__all__ = ("Inference", "addressed", "chariot_endpoints")

_PREFIX = "m-"
_MODEL = "/v2/models/{target:str}"
_VERSION = f"{_MODEL}/versions/{{version:str}}"


def addressed(engine: Engine, request: HttpRequest, caller: Caller | None = None) -> tuple[str, str | None]:
    """The name of the model that a path means, and the version when it gives one; the bare path means the default.

    Args:
        engine: has the models.
        request: whose path.
        caller: the sender of an inference, of whose refusal observers are to be told.

    Raises:
        InferenceError: MODEL_NOT_FOUND.
    """
    target = request.path_params.get("target")
    try:
        if target is None:
            return engine.registry.default_name(), None
        return engine.registry.name_for_chariot(target.removeprefix(_PREFIX)), request.path_params.get("version")
    except InferenceError as error:
        raise (engine.refused(caller, error) if caller else error) from None


class _Status(msgspec.Struct, frozen=True):
    status: str


class _ModelReady(msgspec.Struct, frozen=True):
    name: str
    ready: bool


class Inference(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol's own part of `Endpoint` for its inferences."""

    handle: Callable[[HttpRequest], Awaitable[Response[bytes]]]
    body: Any
    answer: Any
    media_types: Sequence[str] = ()


def chariot_endpoints(engine: Engine, inference: Inference) -> Sequence[Endpoint]:
    """`inference` on all of Chariot's paths, readiness of the server and of one model, and liveness."""

    async def ready(_: HttpRequest) -> Response[bytes]:
        if not engine.unready:
            return json_response(b'{"status":"ready"}')
        return json_response(msgspec.json.encode({"status": "not ready", "error": engine.unready}), status=503)

    async def health(_: HttpRequest) -> Response[bytes]:
        return json_response(b'{"status":"alive"}')

    async def model_ready(request: HttpRequest) -> Response[bytes]:
        name, version = addressed(engine, request)
        engine.ready(name, version)
        return json_response(msgspec.json.encode({"name": name, "ready": True}))

    def infer(path: str, summary: str, claims: Callable[[str], bool] | None) -> Endpoint:
        return Endpoint(
            method="POST",
            path=path,
            handle=inference.handle,
            summary=summary,
            body=inference.body,
            answer=inference.answer,
            media_types=inference.media_types,
            failures=INFER_FAILURES,
            claims=claims,
        )

    def model_readiness(path: str) -> Endpoint:
        return Endpoint(
            method="GET",
            path=path,
            handle=model_ready,
            summary="Whether a model can answer",
            answer=_ModelReady,
            failures=(404, 503),
            claims=_is_chariot,
        )

    return [
        infer("/infer", "Infer with the only model, or the default one", None),
        infer(f"{_MODEL}/infer", "Infer with the model of a Chariot id, m-<id>", _is_chariot),
        infer(f"{_VERSION}/infer", "Infer with one version of the model of a Chariot id, m-<id>", _is_chariot),
        Endpoint(
            method="GET",
            path="/ready",
            handle=ready,
            summary="Whether every model can answer",
            answer=_Status,
            failures=(503,),
            permission="open",
        ),
        Endpoint(
            method="GET",
            path="/health",
            handle=health,
            summary="Whether the process answers",
            answer=_Status,
            permission="open",
        ),
        model_readiness(f"{_MODEL}/ready"),
        model_readiness(f"{_VERSION}/ready"),
    ]


def _is_chariot(target: str) -> bool:
    return target.startswith(_PREFIX)
