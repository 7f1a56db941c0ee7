"""Protocols with the endpoints and methods that plugins add to them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from app.core.engine.engine import Engine
from app.core.protocols.grpc_protocol import GrpcMethods, GrpcProtocol, Handler
from app.core.protocols.protocol import Endpoint, HttpProtocol
from tasks.inference.error import InferenceError


class ExtendedHttp(HttpProtocol):
    """An HTTP protocol with further endpoints."""

    def __init__(self, protocol: HttpProtocol, added: Sequence[Callable[[Engine], Sequence[Endpoint]]]) -> None:
        self.name = protocol.name
        self.prefixes = protocol.prefixes
        self.request_headers = protocol.request_headers
        self.response_headers = protocol.response_headers
        self._protocol = protocol
        self._added = added

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        added = [endpoint for endpoints_of in self._added for endpoint in endpoints_of(engine)]
        return [*self._protocol.endpoints(engine), *added]

    def error_body(self, error: InferenceError, /) -> bytes:
        return self._protocol.error_body(error)

    def routing_error(self, status: int, message: str, /) -> bytes:
        return self._protocol.routing_error(status, message)


class ExtendedGrpc(GrpcProtocol):
    """A gRPC service with further methods, which may be missing in its descriptor."""

    def __init__(self, protocol: GrpcProtocol, added: Sequence[GrpcMethods]) -> None:
        self.name = protocol.name
        self.service = protocol.service
        self.permissions = dict(protocol.permissions)
        for methods in added:
            self.permissions |= methods.permissions
        self.queued_methods = protocol.queued_methods
        self._protocol = protocol
        self._added = added

    def rejection_message(self, error: InferenceError, /) -> bytes | None:
        return self._protocol.rejection_message(error)

    def target_model(self, data: bytes, /) -> str:
        names = (methods.target_model(data) for methods in self._added)
        return self._protocol.target_model(data) or next(filter(None, names), "")

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        handlers = dict(self._protocol.handlers(engine, stopping))
        for methods in self._added:
            handlers |= methods.handlers(engine)
        return handlers
