"""Triton's model repository and statistics extensions over REST."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.models.registry import Registration
from app.engine.statistics import Duration
from app.protocols.http_inference import read_body
from app.protocols.kserve_v2.model_config import MODEL_PATH, VERSION_PATH
from app.protocols.protocol import Endpoint, HttpRequest, json_response
from app.wire.json_body import read_json
from tasks.inference.error import ErrorKind, InferenceError

_MODEL = "/v2/repository/models/{target:str}"
_DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


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
        return json_response(msgspec.json.encode(await index_entries(engine, ready=options.ready)))

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
        return json_response(msgspec.json.encode(statistics_of(engine, name, version)))

    change = partial(Endpoint, method="POST", failures=(400, 404, 413, 503), permission="admin")
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
        change(path=f"{_MODEL}/load", handle=load, summary="Load or reload a model from disk"),
        change(path=f"{_MODEL}/unload", handle=unload, summary="Unload a model"),
        *(
            Endpoint(
                method="GET",
                path=f"{path}/stats",
                handle=statistics,
                summary="Statistics of models since the server started",
                failures=(404, 503),
                permission="read",
            )
            for path in ("/v2/models", MODEL_PATH, VERSION_PATH)
        ),
    ]


def reject_load_parameters(parameters: Mapping[str, object]) -> None:
    """Reject parameters of a load request. Triton accepts settings and files there, which would be unchecked here.

    Raises:
        InferenceError: UNSUPPORTED, for any parameter.
    """
    if parameters:
        names = ", ".join(map(repr, parameters))
        raise InferenceError(ErrorKind.UNSUPPORTED, f"Models are loaded from disk without parameters, got {names:.200}")


async def index_entries(engine: Engine, *, ready: bool) -> Sequence[_IndexEntry]:
    """Return the repository index: every version of every model, or only the ready ones."""
    return [
        _IndexEntry(entry.source.name, entry.source.version, entry.state, entry.reason)
        for entry in await engine.repository.index()
        if entry.servable is not None or not ready
    ]


def statistics_of(engine: Engine, name: str | None, version: str | None) -> Mapping[str, Any]:
    """Return the statistics of one version, or of all ready ones of a model or of the server.

    Raises:
        InferenceError: MODEL_NOT_FOUND, or MODEL_NOT_READY.
    """
    registrations: Sequence[Registration] = engine.registry.registrations
    if name:
        found = engine.registry.find(name, version or None)
        registrations = [found] if version else engine.registry.versions(name)
    return {
        "model_stats": [
            _statistics(engine, registration)
            for registration in registrations
            if registration.servable is not None or version
        ]
    }


def _statistics(engine: Engine, registration: Registration) -> dict[str, Any]:
    source = registration.source
    statistics = engine.statistics.for_model(source.name, source.version)
    return {
        "name": source.name,
        "version": source.version,
        "last_inference": statistics.last_inference,
        "inference_count": statistics.inference_count,
        "execution_count": statistics.execution_count,
        "inference_stats": {
            **{name: getattr(statistics, name) for name in _DURATIONS},
            # This server has no response cache, but the extension requires these fields.
            "cache_hit": Duration(),
            "cache_miss": Duration(),
        },
        "batch_stats": [
            {"batch_size": size, **msgspec.structs.asdict(batch)} for size, batch in sorted(statistics.batches.items())
        ],
    }
