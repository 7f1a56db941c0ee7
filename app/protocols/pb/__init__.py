"""The protobuf messages of the gRPC protocols, made from descriptors in a pool of their own.

Clients that run in the same process, tests and users' models among them, bring their own ``inference`` package into
protobuf's default pool, which takes each name once. What is here collides with none of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ("GRPS", "INFERENCE", "descriptors", "message_class")

_FOLDER = Path(__file__).parent


def descriptors(file: str) -> Sequence[bytes]:
    """The serialized file descriptors in one of the ``.binpb`` files here, each after those that it imports."""
    found = FileDescriptorSet.FromString((_FOLDER / file).read_bytes())
    return [each.SerializeToString() for each in found.file]


def message_class(name: str) -> Any:
    """The class of the messages called `name`, package included. protobuf makes it; type checkers cannot know it."""
    return GetMessageClass(_pool.FindMessageTypeByName(name))


def _filled(pool: DescriptorPool) -> DescriptorPool:
    for file in ("inference.binpb", "grps.binpb"):
        for each in descriptors(file):
            pool.AddSerializedFile(each)
    return pool


_pool = _filled(DescriptorPool())

INFERENCE: ServiceDescriptor = _pool.FindServiceByName("inference.GRPCInferenceService")
"""The service of the Open Inference Protocol."""

GRPS: ServiceDescriptor = _pool.FindServiceByName("grps.protos.v1.GrpsService")
"""The service of GRPS."""
