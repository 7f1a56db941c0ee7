"""Triton's extensions: model configuration, repository, statistics; and rejections of those that this server lacks."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registration
from app.core.protocols.http_inference import read_body
from app.core.protocols.kserve_v2.rendering import declared_outputs
from app.core.protocols.kserve_v2.routes import MODEL_PATH, VERSION_PATH, find_registration
from app.core.protocols.protocol import Endpoint, HttpRequest, Method, read_endpoint
from app.core.wire.json_body import read_json
from app.plugins.triton.statistics import Statistics
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import TaskType

_PLATFORMS = {"onnx": ("onnxruntime_onnx", "onnxruntime"), "transformers": ("", "pytorch")}
"""Triton's names for the platform and the backend; by default no platform, and our name as the backend."""

_GET_AND_POST: tuple[Method, ...] = ("GET", "POST")
_SHARED_MEMORY = (
    "status",
    "unregister",
    *(f"region/{{region:str}}/{call}" for call in ("status", "register", "unregister")),
)

UNSUPPORTED: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "log settings": (("/v2/logging",), ("LogSettings",)),
    "trace settings": (("/v2/trace/setting", f"{MODEL_PATH}/trace/setting"), ("TraceSetting",)),
    "shared memory": (
        [f"/v2/{kind}sharedmemory/{path}" for kind in ("system", "cuda") for path in _SHARED_MEMORY],
        [f"{kind}SharedMemory{call}" for kind in ("System", "Cuda") for call in ("Status", "Register", "Unregister")],
    ),
}
"""The paths and the gRPC methods of extensions that this server does not have, by what they need."""

_REPOSITORY_MODEL = "/v2/repository/models/{target:str}"


class _IndexRequest(msgspec.Struct, frozen=True):
    ready: bool = False


class _LoadRequest(msgspec.Struct, frozen=True):
    parameters: Mapping[str, object] = {}


class _IndexEntry(msgspec.Struct, frozen=True):
    name: str
    version: str
    state: str
    reason: str


def endpoints(engine: Engine) -> Sequence[Endpoint]:
    """Return the endpoints to configure, list, load and unload models, for statistics, and of rejections."""

    async def index(request: HttpRequest) -> object:
        body = await read_body(request, engine)
        options = read_json(body, _IndexRequest, limits=engine.limits) if body.strip() else _IndexRequest()
        return await index_entries(engine, ready=options.ready)

    async def load(request: HttpRequest) -> object:
        name = request.path_params["target"]
        body = await read_body(request, engine)
        options = read_json(body, _LoadRequest, limits=engine.limits) if body.strip() else _LoadRequest()
        reject_load_parameters(options.parameters)
        await engine.repository.load(name)
        return {"name": name, "load": True}

    async def unload(request: HttpRequest) -> object:
        name = request.path_params["target"]
        await engine.repository.unload(name)
        return {"name": name, "unload": True}

    def statistics(request: HttpRequest) -> object:
        target, version = request.path_params.get("target"), request.path_params.get("version")
        return statistics_of(engine, engine.registry.name_for_path(target) if target else None, version)

    def config(request: HttpRequest) -> object:
        return model_config(find_registration(engine, request))

    def reject(feature: str, _: HttpRequest) -> object:
        raise unsupported(feature)

    describe = partial(read_endpoint, failures=(404, 503))
    change = partial(Endpoint, method="POST", failures=(400, 404, 413, 503), permission="admin")
    return [
        Endpoint(
            "/v2/repository/index",
            "Every version of every model",
            method="POST",
            handle=index,
            body=_IndexRequest,
            body_required=False,
            answer=list[_IndexEntry],
            failures=(400, 413),
            permission="read",
        ),
        change(f"{_REPOSITORY_MODEL}/load", "Load or reload a model from disk", handle=load),
        change(f"{_REPOSITORY_MODEL}/unload", "Unload a model", handle=unload),
        *(
            describe(
                f"{path}/stats", "Statistics of models since the server started", handle=statistics, permission="read"
            )
            for path in ("/v2/models", MODEL_PATH, VERSION_PATH)
        ),
        *(
            describe(f"{path}/config", "Triton's configuration of a model", handle=config)
            for path in (MODEL_PATH, VERSION_PATH)
        ),
        *(
            Endpoint(
                path,
                f"Not supported: Triton's {feature}",
                method=method,
                handle=partial(reject, feature),
                failures=(400,),
                permission="infer",
            )
            for feature, (paths, _) in UNSUPPORTED.items()
            for path in paths
            for method in _GET_AND_POST
        ),
    ]


def unsupported(feature: str) -> InferenceError:
    """Return the error of an extension that this server does not have."""
    instead = "send tensors in the request" if feature == "shared memory" else "set them when the server starts"
    return InferenceError(ErrorKind.UNSUPPORTED, f"This server does not support Triton's {feature}; {instead}")


def model_config(registration: Registration) -> Mapping[str, Any]:
    """Return the message ModelConfig of a model, with the tensors of its metadata."""
    servable = registration.ready_servable()
    description, source = servable.description, registration.source
    outputs = declared_outputs(servable)
    platform, backend = _PLATFORMS.get(description.platform, ("", description.platform))
    batching = source.settings.batching
    # Triton leaves the first dimension out of the tensors that it batches.
    batched = (
        batching.max_size > 1
        and description.task_type is TaskType.TENSOR
        and all(len(spec.shape) > 1 and spec.shape[0] == -1 for spec in (*servable.inputs, *outputs))
    )
    parameters = {"task_type": {"string_value": str(description.task_type)}}
    if description.properties:
        # Ultralytics' client reads a Python literal.
        parameters["metadata"] = {"string_value": repr(dict(description.properties))}
    config: dict[str, Any] = {
        "name": source.name,
        "platform": platform,
        "backend": backend,
        "version_policy": {"all": {}},
        "max_batch_size": batching.max_size if batched else 0,
        "input": [{**_tensor(spec, batched), "format": "FORMAT_NONE"} for spec in servable.inputs],
        "output": [{**_tensor(spec, batched), "label_filename": ""} for spec in outputs],
        "parameters": parameters,
        "model_transaction_policy": {"decoupled": False},
    }
    if batched:
        microseconds = round(batching.max_delay_ms * 1000)
        config["dynamic_batching"] = {
            "preferred_batch_size": [batching.max_size],
            "max_queue_delay_microseconds": microseconds,
        }
    return config


def _tensor(spec: TensorSpec, batched: bool) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype is Datatype.BYTES else spec.datatype.value
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": list(spec.shape[1:] if batched else spec.shape)}


def reject_load_parameters(parameters: Mapping[str, object]) -> None:
    """Reject parameters of a load request. Triton accepts settings and files there, which would be unchecked here.

    Raise UNSUPPORTED, for any parameter.
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

    Raise MODEL_NOT_FOUND, or MODEL_NOT_READY.
    """
    registrations: Sequence[Registration] = [*engine.registry.registrations, *engine.registry.tensor_views]
    if name:
        found = engine.registry.find(name, version or None)
        registrations = [found] if version else engine.registry.versions(name)
    (observer,) = engine.provided.find(Statistics)
    engine.batched_observers.flush()
    return {
        "model_stats": [
            observer.for_model(registration.source.name, registration.source.version)
            for registration in registrations
            if registration.servable is not None or version
        ]
    }
