"""Create gRPC messages and look up services for calls to engines."""

from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from app.proto import GRPS, INFERENCE, message_class

__all__ = ("GRPS", "OPEN_INFERENCE", "answer_class", "message", "request_class")

OPEN_INFERENCE = INFERENCE


def message(name: str, /, **fields: Any) -> Any:
    """Return a message called `name`, package included. Type checkers do not know its class."""
    return message_class(name)(**fields)


def request_class(service: ServiceDescriptor, method: str) -> Any:
    """Return the class of the requests of `method`."""
    return GetMessageClass(service.methods_by_name[method].input_type)


def answer_class(service: ServiceDescriptor, method: str) -> Any:
    """Return the class of the responses of `method`."""
    return GetMessageClass(service.methods_by_name[method].output_type)
