"""Triton's model repository and statistics extensions over REST."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.models.registry import Registration
from app.engine.statistics import Duration, ModelStatistics
from app.protocols.protocol import Endpoint, HttpRequest, json_response
from app.protocols.request_body import read_body
from app.wire.json_body import read_json
from tasks.inference.error import ErrorKind, InferenceError

__all__ = ("index_entry", "reject_load_parameters", "repository_endpoints", "statistics_of", "versions_with_statistics")


class _IndexRequest(msgspec.Struct, frozen=True):
    ready: bool = False


class _LoadRequest(msgspec.Struct, frozen=True):
    parameters: Mapping[str, object] = {}


class _IndexEntry(msgspec.Struct, frozen=True):
    name: str
    version: str
    state: str
    reason: str


def repository_endpoints(engine: Engine) -> Sequence[Endpoint]:
    """Return the endpoints to list, load and unload models, and for their statistics."""

    async def index(request: HttpRequest) -> Response[bytes]:
        body = await read_body(request, engine)
        options = read_json(body, _IndexRequest, limits=engine.limits) if body.strip() else _IndexRequest()
        entries = [
            entry for entry in await engine.repository.index() if entry.servable is not None or not options.ready
        ]
        return json_response(msgspec.json.encode([index_entry(entry) for entry in entries]))

    async def load(request: HttpRequest) -> Response[bytes]:
        name = request.path_params["target"]
        body = await read_body(request, engine)
        options = read_json(body, _LoadRequest, limits=engine.limits) if body.strip() else _LoadRequest()
        reject_load_parameters(options.parameters)
        await engine.repository.load(name)
        return json_response(msgspec.json.encode({"name": name, "load": True}))

    async def unload(request: HttpRequest) -> Response[bytes]:
        name = request.path_params["target"]
        await engine.repository.unload(name)
        return json_response(msgspec.json.encode({"name": name, "unload": True}))

    async def statistics(request: HttpRequest) -> Response[bytes]:
        target, version = request.path_params.get("target"), request.path_params.get("version")
        name = engine.registry.name_for_path(target) if target else None
        registrations = versions_with_statistics(engine, name, version)
        return json_response(
            msgspec.json.encode(
                {"model_stats": [statistics_of(engine, registration) for registration in registrations]}
            )
        )

    def action_endpoint(
        action: str, handle: Callable[[HttpRequest], Awaitable[Response[bytes]]], summary: str
    ) -> Endpoint:
        path = f"/v2/repository/models/{{target:str}}/{action}"
        return Endpoint(
            method="POST",
            path=path,
            handle=handle,
            summary=summary,
            failures=(400, 404, 413, 503),
            permission="admin",
        )

    def statistics_at(path: str) -> Endpoint:
        summary = "Statistics of models since the server started"
        return Endpoint(
            method="GET", path=path, handle=statistics, summary=summary, failures=(404, 503), permission="read"
        )

    return [
        Endpoint(
            method="POST",
            path="/v2/repository/index",
            handle=index,
            summary="Every version of every model",
            body=_IndexRequest,
            answer=list[_IndexEntry],
            failures=(400, 413),
            permission="read",
        ),
        action_endpoint("load", load, "Load or reload a model from disk"),
        action_endpoint("unload", unload, "Unload a model"),
        statistics_at("/v2/models/stats"),
        statistics_at("/v2/models/{target:str}/stats"),
        statistics_at("/v2/models/{target:str}/versions/{version:str}/stats"),
    ]


def reject_load_parameters(parameters: Mapping[str, object]) -> None:
    """Reject parameters of a load request. Triton accepts settings and files there, which would be unchecked here.

    Raises:
        InferenceError: UNSUPPORTED, for any parameter.
    """
    if parameters:
        names = ", ".join(map(repr, parameters))
        raise InferenceError(ErrorKind.UNSUPPORTED, f"Models are loaded from disk without parameters, got {names:.200}")


def index_entry(registration: Registration) -> _IndexEntry:
    """Return one item of the repository index."""
    source = registration.source
    return _IndexEntry(source.name, source.version, registration.state, registration.reason)


def versions_with_statistics(engine: Engine, name: str | None, version: str | None) -> Sequence[Registration]:
    """Return the versions whose statistics are requested: one version, or all ready ones of a model or of the server.

    Raises:
        InferenceError: MODEL_NOT_FOUND, or MODEL_NOT_READY.
    """
    if not name:
        return [registration for registration in engine.registry.registrations if registration.servable is not None]
    registration = engine.registry.find(name, version or None)
    if version:
        return [registration]
    return [registration for registration in engine.registry.versions(name) if registration.servable is not None]


def statistics_of(engine: Engine, registration: Registration) -> dict[str, Any]:
    """Return one item of `model_stats`."""
    source = registration.source
    statistics = engine.statistics.for_model(source.name, source.version)
    return {
        "name": source.name,
        "version": source.version,
        "last_inference": statistics.last_inference,
        "inference_count": statistics.inference_count,
        "execution_count": statistics.execution_count,
        "inference_stats": _durations(statistics),
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": batch.compute_input,
                "compute_infer": batch.compute_infer,
                "compute_output": batch.compute_output,
            }
            for size, batch in sorted(statistics.batches.items())
        ],
    }


def _durations(statistics: ModelStatistics) -> dict[str, Duration]:
    return {
        "success": statistics.success,
        "fail": statistics.fail,
        "queue": statistics.queue,
        "compute_input": statistics.compute_input,
        "compute_infer": statistics.compute_infer,
        "compute_output": statistics.compute_output,
        # This server has no response cache, but the extension requires these fields.
        "cache_hit": Duration(),
        "cache_miss": Duration(),
    }
