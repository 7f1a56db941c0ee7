"""Triton's model configuration extension, and refusals of its extensions that this server does not have."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from litestar import Response

from app.engine.engine import Engine
from app.engine.models.registry import Registration
from app.protocols.kserve_v2.rendering import declared_outputs
from app.protocols.protocol import Endpoint, HttpRequest, Method, json_response, read_endpoint
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import TaskType

_PLATFORMS = {"onnx": ("onnxruntime_onnx", "onnxruntime"), "transformers": ("", "pytorch")}
"""Triton's names for the platform and the backend; by default no platform, and our name as the backend."""

MODEL_PATH = "/v2/models/{target:str}"
VERSION_PATH = f"{MODEL_PATH}/versions/{{version:str}}"

_GET_AND_POST: tuple[Method, ...] = ("GET", "POST")
_SHARED_MEMORY_PATHS: Mapping[str, Method] = {
    "status": "GET",
    "unregister": "POST",
    "region/{region:str}/status": "GET",
    "region/{region:str}/register": "POST",
    "region/{region:str}/unregister": "POST",
}
_UNSUPPORTED_PATHS: Mapping[str, tuple[str, Sequence[Method]]] = {
    "/v2/logging": ("log settings", _GET_AND_POST),
    "/v2/trace/setting": ("trace settings", _GET_AND_POST),
    f"{MODEL_PATH}/trace/setting": ("trace settings", _GET_AND_POST),
    **{
        f"/v2/{kind}sharedmemory/{path}": ("shared memory", (method,))
        for kind in ("system", "cuda")
        for path, method in _SHARED_MEMORY_PATHS.items()
    },
}

UNSUPPORTED_CALLS: Mapping[str, str] = {
    "TraceSetting": "trace settings",
    "LogSettings": "log settings",
    **{
        f"{kind}SharedMemory{call}": "shared memory"
        for kind in ("System", "Cuda")
        for call in ("Status", "Register", "Unregister")
    },
}
"""The gRPC methods of extensions that this server does not have, with what they need."""


def unsupported(feature: str) -> InferenceError:
    """Return the error of an extension that this server does not have."""
    instead = "send tensors in the request" if feature == "shared memory" else "set them when the server starts"
    return InferenceError(ErrorKind.UNSUPPORTED, f"This server does not support Triton's {feature}; {instead}")


def config_endpoints(engine: Engine) -> Sequence[Endpoint]:
    """Return the endpoints of the extension, and of those that are refused."""

    async def config(request: HttpRequest) -> Response[bytes]:
        return json_response(msgspec.json.encode(model_config(find_registration(engine, request))))

    def refused(method: Method, path: str, feature: str) -> Endpoint:
        async def refuse(_: HttpRequest) -> Response[bytes]:
            raise unsupported(feature)

        summary = f"Not supported: Triton's {feature}"
        return Endpoint(method=method, path=path, handle=refuse, summary=summary, failures=(400,), permission="infer")

    summary = "Triton's configuration of a model"
    configs = [
        read_endpoint(path=f"{path}/config", handle=config, summary=summary, failures=(404, 503))
        for path in (MODEL_PATH, VERSION_PATH)
    ]
    refusals = [
        refused(method, path, feature) for path, (feature, methods) in _UNSUPPORTED_PATHS.items() for method in methods
    ]
    return [*configs, *refusals]


def find_registration(engine: Engine, request: HttpRequest) -> Registration:
    """Return the version of a model that a path names.

    Raises:
        InferenceError: MODEL_NOT_FOUND.
    """
    path = request.path_params
    return engine.registry.find(engine.registry.name_for_path(path["target"]), path.get("version"))


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
    parameters = {"task_type": {"string_value": description.task_type.value}}
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
