"""GRPS's calls beside inference, the same over HTTP and gRPC: each answers with a message."""

from typing import Any

from app.engine.engine import Engine
from app.protocols.grps.descriptions import describe_model, describe_server
from app.protocols.grps.messages import GrpsMessage, succeeded
from tasks.exchange.error import ErrorKind, InferenceError, invalid

__all__ = ("live", "model_metadata", "ready", "server_metadata", "set_online")


def set_online(engine: Engine, online: bool) -> Any:
    """Tell load balancers, whatever protocol they ask over, that the server is to be sent requests, or that it is not.

    What comes is answered all the same.
    """
    engine.online = online
    return succeeded(GrpsMessage())


def live() -> Any:
    """That the process answers."""
    return succeeded(GrpsMessage())


def ready(engine: Engine) -> Any:
    """That every model can answer and the server is online.

    Raises:
        InferenceError: MODEL_NOT_READY with the reason.
    """
    if engine.unready:
        raise InferenceError(ErrorKind.MODEL_NOT_READY, engine.unready)
    return succeeded(GrpsMessage())


def server_metadata(engine: Engine) -> Any:
    """The server and its models in YAML."""
    return succeeded(GrpsMessage(str_data=describe_server(engine)))


def model_metadata(engine: Engine, message: Any) -> Any:
    """The model whose name is the `str_data` of `message` in YAML.

    Raises:
        InferenceError: INVALID_REQUEST for no name, MODEL_NOT_FOUND for an unknown one.
    """
    if not message.str_data:
        raise invalid("Expected the name of a model, got none", "str_data")
    return succeeded(GrpsMessage(str_data=describe_model(engine, message.str_data)))
