"""Serve gRPC reflection: version 1, and the alpha version that older clients ask for. Their messages are the same."""

from collections.abc import Sequence
from typing import Any, cast

import grpc
from google.protobuf import text_format
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

__all__ = ("REFLECTION_METHODS", "reflection_handlers")

_METHOD = "ServerReflectionInfo"
_ALPHA = reflection.SERVICE_NAME
_SERVICES = (_ALPHA.replace("v1alpha", "v1"), _ALPHA)

REFLECTION_METHODS = tuple(f"/{service}/{_METHOD}" for service in _SERVICES)
"""The full names of the methods."""


def reflection_handlers(names: Sequence[str], files: Sequence[FileDescriptor]) -> Sequence[grpc.GenericRpcHandler]:
    """Return the handlers of both versions.

    Args:
        names: the full names of the other services.
        files: the descriptors of the services that are not gRPC's own.
    """
    pool = _ReflectedPool([*files, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR])
    servicer: Any = reflection.aio.ReflectionServicer([*names, *_SERVICES], pool=cast("DescriptorPool", pool))
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(service, {_METHOD: handler}) for service in _SERVICES]


class _ReflectedPool:
    """The descriptors of all services. It also finds the methods of services, which protobuf's pool does not.

    Args:
        files: the descriptors, from any pool.
    """

    def __init__(self, files: Sequence[Any]) -> None:
        self._pool = DescriptorPool()
        self._names: set[str] = set()
        for file in files:
            self._add(file)
        alpha = FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb)
        text = text_format.MessageToString(alpha).replace("v1alpha", "v1")
        self._pool.AddSerializedFile(text_format.Parse(text, FileDescriptorProto()).SerializeToString())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802  protobuf's name
        """Return the descriptor of the file that defines `symbol`.

        Raises:
            KeyError: if none does.
        """
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            descriptor: Any = self._pool.FindServiceByName(service)
            return descriptor.methods_by_name[method].containing_service.file

    def _add(self, file: Any) -> None:
        if file.name in self._names:
            return
        self._names.add(file.name)
        for dependency in file.dependencies:
            self._add(dependency)
        self._pool.AddSerializedFile(file.serialized_pb)
