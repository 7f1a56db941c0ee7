"""The methods of Triton's extensions in the gRPC service of the Open Inference Protocol."""

from functools import partial
from typing import Any

from app.core.engine.engine import Engine
from app.core.protocols.grpc_protocol import GrpcMethods
from app.core.protocols.kserve_v2.protobuf import read_message
from app.core.protocols.kserve_v2.servicer import PlainCalls, plain_handlers
from app.plugins.triton.extensions import (
    UNSUPPORTED,
    index_entries,
    model_config,
    reject_load_parameters,
    statistics_of,
    unsupported,
)
from tasks.inference.error import InferenceError


def _config(engine: Engine, model: Any) -> object:
    return {"config": model_config(engine.registry.find(model.name, model.version or None))}


async def _index(engine: Engine, request: Any) -> object:
    return {"models": await index_entries(engine, ready=request.ready)}


async def _load(engine: Engine, request: Any) -> object:
    reject_load_parameters(request.parameters)
    await engine.repository.load(request.model_name)
    return {}


async def _unload(engine: Engine, request: Any) -> object:
    await engine.repository.unload(request.model_name)
    return {}


def _reject(feature: str, _: Engine, __: Any) -> object:
    raise unsupported(feature)


def _target_model(data: bytes) -> str:
    try:
        # Load and unload requests have the name in the same field.
        return read_message("RepositoryModelUnloadRequest", data).model_name
    except InferenceError:
        return ""


_CALLS: PlainCalls = {
    "ModelConfig": ("infer", _config),
    "ModelStatistics": ("read", lambda engine, model: statistics_of(engine, model.name, model.version)),
    "RepositoryIndex": ("read", _index),
    "RepositoryModelLoad": ("admin", _load),
    "RepositoryModelUnload": ("admin", _unload),
    **{name: ("infer", partial(_reject, feature)) for feature, (_, names) in UNSUPPORTED.items() for name in names},
}

METHODS = GrpcMethods(
    permissions={name: permission for name, (permission, _) in _CALLS.items()},
    handlers=partial(plain_handlers, calls=_CALLS),
    target_model=_target_model,
)
"""All methods that this plugin adds to the service."""
