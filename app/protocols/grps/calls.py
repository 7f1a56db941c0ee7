"""GRPS's calls other than inference, shared by HTTP and gRPC. Each returns a message."""

from typing import Any

from app.engine.engine import Engine
from app.protocols.grps.descriptions import describe_model, describe_server
from app.protocols.grps.messages import GrpsMessage, with_success_status
from tasks.inference.error import ErrorKind, InferenceError, invalid

__all__ = ("live", "model_metadata", "ready", "server_metadata", "set_online")


def set_online(engine: Engine, online: bool) -> Any:
    """Set whether load balancers, over any protocol, may send requests. Requests are answered in either case."""
    engine.online = online
    return with_success_status(GrpsMessage())


def live() -> Any:
    """Report that the process is alive."""
    return with_success_status(GrpsMessage())


def ready(engine: Engine) -> Any:
    """Report that every model is ready and the server is online.

    Raises:
        InferenceError: MODEL_NOT_READY with the reason otherwise.
    """
    if engine.not_ready_reason:
        raise InferenceError(ErrorKind.MODEL_NOT_READY, engine.not_ready_reason)
    return with_success_status(GrpsMessage())


def server_metadata(engine: Engine) -> Any:
    """Describe the server and its models in YAML."""
    return with_success_status(GrpsMessage(str_data=describe_server(engine)))


def model_metadata(engine: Engine, message: Any) -> Any:
    """Describe the model whose name is the `str_data` of `message`, in YAML.

    Raises:
        InferenceError: INVALID_REQUEST for an empty name, MODEL_NOT_FOUND for an unknown name.
    """
    if not message.str_data:
        raise invalid("Expected the name of a model, got none", "str_data")
    return with_success_status(GrpsMessage(str_data=describe_model(engine, message.str_data)))
