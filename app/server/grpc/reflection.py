"""Serve gRPC reflection: version 1, and the alpha version that older clients ask for. Their messages are the same."""

from collections.abc import Sequence
from typing import Any, cast

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

_METHOD = "ServerReflectionInfo"
_SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")

REFLECTION_METHODS = tuple(f"/{service}/{_METHOD}" for service in _SERVICES)
"""The full names of the methods."""


class Reflection(grpc.GenericRpcHandler):
    """Handle both versions. The libraries are imported by the first call: few clients need them.

    Args:
        names: the full names of the other services.
        files: the descriptors of the services that are not gRPC's own.
    """

    def __init__(self, names: Sequence[str], files: Sequence[FileDescriptor]) -> None:
        self._names = names
        self._files = files
        self._handler: Any = None

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call; None for other services."""
        if handler_call_details.method not in REFLECTION_METHODS:
            return None
        if self._handler is None:
            from grpc_health.v1 import health_pb2
            from grpc_reflection.v1alpha import reflection, reflection_pb2

            pool = _ReflectedPool([*self._files, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR], reflection_pb2)
            servicer: Any = reflection.aio.ReflectionServicer([*self._names, *_SERVICES], pool=cast("Any", pool))
            self._handler = grpc.stream_stream_rpc_method_handler(
                servicer.ServerReflectionInfo,
                reflection_pb2.ServerReflectionRequest.FromString,
                reflection_pb2.ServerReflectionResponse.SerializeToString,
            )
        return self._handler


class _ReflectedPool:
    """The descriptors of all services. It also finds the methods of services, which protobuf's pool does not.

    Args:
        files: the descriptors, from any pool.
        alpha: the module with the messages of the alpha version.
    """

    def __init__(self, files: Sequence[Any], alpha: Any) -> None:
        from google.protobuf import text_format
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        self._pool = DescriptorPool()
        self._names: set[str] = set()
        for file in files:
            self._add(file)
        text = text_format.MessageToString(FileDescriptorProto.FromString(alpha.DESCRIPTOR.serialized_pb))
        text = text.replace("v1alpha", "v1")
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
