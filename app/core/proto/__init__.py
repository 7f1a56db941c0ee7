"""The protobuf messages of the Open Inference Protocol, and the pool of all messages.

They are `.proto` files, and the descriptors compiled from them by `make proto`. A plugin has its own in its folder
`proto`, and adds them to the pool when they are imported.

The descriptors have their own pool. Clients in the same process, such as tests and user models, register their own
``inference`` package in protobuf's default pool, which accepts each name only once.
"""

from pathlib import Path
from typing import Any

from google.protobuf import any_pb2, wrappers_pb2
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ("INFERENCE", "add_descriptors", "message_class", "service")


_pool = DescriptorPool()
for imported in (any_pb2, wrappers_pb2):
    _pool.AddSerializedFile(imported.DESCRIPTOR.serialized_pb)


def add_descriptors(folder: Path, *names: str) -> None:
    """Add the messages and services of `.binpb` files to the pool; a file comes after those that it imports."""
    for name in names:
        for descriptor in FileDescriptorSet.FromString((folder / f"{name}.binpb").read_bytes()).file:
            _pool.AddSerializedFile(descriptor.SerializeToString())


def message_class(name: str) -> Any:
    """Return the class of the message `name`, which includes the package. Type checkers do not know these classes."""
    return GetMessageClass(_pool.FindMessageTypeByName(name))


def service(name: str) -> ServiceDescriptor:
    """Return the descriptor of the service `name`, which includes the package."""
    return _pool.FindServiceByName(name)


add_descriptors(Path(__file__).parent, "inference")

INFERENCE = service("inference.GRPCInferenceService")
"""The service of the Open Inference Protocol."""
