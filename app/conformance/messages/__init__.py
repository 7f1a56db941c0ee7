"""The messages of the gRPC protocols that engines are asked by, in a pool of their own.

They are made from files that were written from the protocols' own sources, not from those of the server here. In a pool
of their own they collide with no other package called ``inference`` in the process, such as that of a user's test.
"""

from pathlib import Path
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ("GRPS", "OPEN_INFERENCE", "answer_class", "is_streamed", "message", "request_class")

_FOLDER = Path(__file__).parent


def _filled(pool: DescriptorPool) -> DescriptorPool:
    for file in ("open_inference.binpb", "grps.binpb"):
        for each in FileDescriptorSet.FromString((_FOLDER / file).read_bytes()).file:
            pool.AddSerializedFile(each.SerializeToString())
    return pool


_pool = _filled(DescriptorPool())

OPEN_INFERENCE: ServiceDescriptor = _pool.FindServiceByName("inference.GRPCInferenceService")
"""The service of the Open Inference Protocol."""

GRPS: ServiceDescriptor = _pool.FindServiceByName("grps.protos.v1.GrpsService")
"""The service of GRPS."""


def message(name: str, /, **fields: Any) -> Any:
    """A message called `name`, package included. protobuf makes its class; type checkers cannot know it."""
    return GetMessageClass(_pool.FindMessageTypeByName(name))(**fields)


def request_class(service: ServiceDescriptor, method: str) -> Any:
    """The class of what `method` is asked with."""
    return GetMessageClass(service.methods_by_name[method].input_type)


def answer_class(service: ServiceDescriptor, method: str) -> Any:
    """The class of what `method` answers."""
    return GetMessageClass(service.methods_by_name[method].output_type)


def is_streamed(service: ServiceDescriptor, method: str) -> bool:
    """Whether `method` answers with several messages."""
    return service.methods_by_name[method].server_streaming
