"""Add the endpoints and methods of plugins to protocols."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import copy

from app.core.engine.engine import Engine
from app.core.protocols.grpc_protocol import GrpcMethods, GrpcProtocol, Handler
from app.core.protocols.protocol import Endpoint, HttpProtocol


def with_endpoints(protocol: HttpProtocol, added: Sequence[Callable[[Engine], Sequence[Endpoint]]]) -> HttpProtocol:
    """Return an HTTP protocol with further endpoints."""

    def endpoints(engine: Engine, /) -> Sequence[Endpoint]:
        return [endpoint for endpoints_of in (protocol.endpoints, *added) for endpoint in endpoints_of(engine)]

    extended = copy(protocol)
    extended.endpoints = endpoints
    return extended


def with_methods(protocol: GrpcProtocol, added: Sequence[GrpcMethods]) -> GrpcProtocol:
    """Return a gRPC service with further methods, which may be missing in its descriptor."""

    def target_model(data: bytes, /) -> str:
        return next(filter(None, (part.target_model(data) for part in (protocol, *added))), "")

    def handlers(engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        found = dict(protocol.handlers(engine, stopping))
        for methods in added:
            found |= methods.handlers(engine)
        return found

    extended = copy(protocol)
    extended.permissions = dict(protocol.permissions)
    for methods in added:
        extended.permissions |= methods.permissions
    extended.target_model, extended.handlers = target_model, handlers
    return extended
