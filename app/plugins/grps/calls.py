"""GRPS's calls other than inference, and its errors, which HTTP and gRPC share."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import yaml

from app import __version__
from app.core.engine.engine import Engine
from app.core.engine.error_text import list_choices
from app.core.engine.models.registry import Registration, Registry
from app.core.protocols.protocol import Permission
from app.core.protocols.status import http_status
from app.plugins.grps.messages import GrpsMessage, with_success_status
from app.plugins.grps.tensors import dtype_name
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.tensor import TensorSpec

_FAILURE = 2

ReadMessage = Callable[[], Any]


class PlainCall(msgspec.Struct, frozen=True):
    """A call without an inference.

    Attributes:
        path: the path over HTTP, below ``/grps/v1/``.
        summary: description for OpenAPI.
        permission: the permission that a client needs.
        text: returns the `str_data` of the response, if any; it may read the request's message.
        reads_message: whether the request has a message; over HTTP, it then cannot be a GET.
        failures: HTTP statuses of errors.
        is_slow: whether it writes YAML of every label, which would block the event loop.
    """

    path: str
    summary: str
    permission: Permission
    text: Callable[[Engine, ReadMessage], str | None]
    reads_message: bool = False
    failures: Sequence[int] = ()
    is_slow: bool = False

    async def respond(self, engine: Engine, read_message: ReadMessage, serialize: Callable[[Any], bytes]) -> bytes:
        """Return the response. Raise InferenceError as `text`."""

        def respond() -> bytes:
            return serialize(with_success_status(GrpsMessage(str_data=self.text(engine, read_message))))

        return await asyncio.to_thread(respond) if self.is_slow else respond()


def _set_online(online: bool, engine: Engine, _: ReadMessage) -> None:
    engine.online = online


def _check_readiness(engine: Engine, _: ReadMessage) -> None:
    if engine.not_ready_reason:
        raise InferenceError(ErrorKind.MODEL_NOT_READY, engine.not_ready_reason)


def _describe_server(engine: Engine, _: ReadMessage) -> str:
    registry = engine.registry
    return _to_yaml(
        {
            "server": {"name": "charioteer", "version": __version__, "online": engine.online},
            "limits": msgspec.to_builtins(engine.limits),
            "default_model": _default(registry),
            "models": [_entry(registry.versions(name)) for name in registry.names],
        }
    )


def _describe_model(engine: Engine, read_message: ReadMessage) -> str:
    """Describe the model whose name, without a version, is the `str_data` of the message."""
    name = read_message().str_data
    if not name:
        raise invalid("Expected the name of a model, got none", "str_data")
    versions = engine.registry.versions(name)
    if not versions:
        message = f"Model {quote_value(name)} is not known. This server has: {list_choices(engine.registry.names)}"
        raise InferenceError(ErrorKind.MODEL_NOT_FOUND, message, "str_data")
    return _to_yaml(_entry(versions))


PLAIN_CALLS: Mapping[str, PlainCall] = {
    "Online": PlainCall("health/online", "Let load balancers send requests", "admin", partial(_set_online, True)),
    "Offline": PlainCall(
        "health/offline", "Stop load balancers from sending requests", "admin", partial(_set_online, False)
    ),
    "CheckLiveness": PlainCall("health/live", "Whether the server is alive", "open", lambda _, __: None),
    "CheckReadiness": PlainCall(
        "health/ready", "Whether load balancers may send requests", "open", _check_readiness, failures=(503,)
    ),
    "ServerMetadata": PlainCall(
        "metadata/server", "The server and its models, in YAML", "infer", _describe_server, is_slow=True
    ),
    "ModelMetadata": PlainCall(
        "metadata/model",
        "One model, in YAML",
        "infer",
        _describe_model,
        reads_message=True,
        failures=(400, 404, 413),
        is_slow=True,
    ),
}
"""The calls, by their names over gRPC."""


def error_message(error: InferenceError) -> Any:
    """Return the message for `error`. Its code is the HTTP status of the error's kind."""
    return failure_message(http_status(error.kind), str(error))


def failure_message(code: int, reason: str) -> Any:
    """Return an error message with a code and a reason."""
    return GrpsMessage(status={"code": code, "msg": reason, "status": _FAILURE})


def _default(registry: Registry) -> str | None:
    try:
        return registry.default_name()
    except InferenceError:
        return None


def _entry(versions: Sequence[Registration]) -> dict[str, Any]:
    """Describe a model's latest ready version, or else its latest version; and list all versions."""
    chosen = next((registration for registration in versions if registration.servable is not None), versions[0])
    entry: dict[str, Any] = {
        "name": chosen.source.name,
        "version": chosen.source.version,
        "versions": [registration.source.version for registration in reversed(versions)],
        "state": chosen.state.value,
    }
    if chosen.servable is None:
        return {**entry, "reason": chosen.reason}
    description = chosen.servable.description
    return {
        **entry,
        "task_type": str(description.task_type),
        "inferer_type": description.platform,
        "labels": list(description.labels),
        "inputs": [_spec(spec) for spec in chosen.servable.inputs],
        "outputs": [_spec(spec) for spec in chosen.servable.outputs],
    }


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": dtype_name(spec.datatype), "shape": list(spec.shape)}


def _to_yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
