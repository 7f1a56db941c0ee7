"""The protobuf messages of the gRPC protocols: `.proto` files, and the descriptors compiled from them by `make proto`.

The descriptors have their own pool. Clients in the same process, such as tests and user models, register their own
``inference`` package in protobuf's default pool, which accepts each name only once.
"""

from pathlib import Path
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ("GRPS", "INFERENCE", "message_class")


def message_class(name: str) -> Any:
    """Return the class of the message `name`, which includes the package. Type checkers do not know these classes."""
    return GetMessageClass(_pool.FindMessageTypeByName(name))


def _filled_pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in ("inference.binpb", "grps.binpb"):
        for descriptor in FileDescriptorSet.FromString((Path(__file__).parent / file).read_bytes()).file:
            pool.AddSerializedFile(descriptor.SerializeToString())
    return pool


_pool = _filled_pool()

INFERENCE: ServiceDescriptor = _pool.FindServiceByName("inference.GRPCInferenceService")
"""The service of the Open Inference Protocol."""

GRPS: ServiceDescriptor = _pool.FindServiceByName("grps.protos.v1.GrpsService")
"""The service of GRPS."""
