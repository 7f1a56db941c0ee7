"""Proxy protocols that a browser cannot reach from the page: gRPC, and protocols on other ports.

The page shows the messages of each protocol, so the main port forwards requests to both without changes. Requests go
to the same application object, and gRPC calls use a connection of their own.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from litestar import Response, asgi, post
from litestar.exceptions import NotFoundException
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from app.core.proto import message_class
from app.core.protocols.protocol import HttpRequest, json_response
from app.core.server.auth.credentials import AUTHORIZATION, KEY_HEADER
from app.core.server.auth.http_access import requires
from tasks.inference.error import invalid

if TYPE_CHECKING:
    from app.core.server.grpc.server import GrpcServer
    from app.core.server.serving import Listener

_INFER = "inference.GRPCInferenceService/ModelInfer"
_TIMEOUT_SECONDS = 120
# The other application authorizes the request itself.
_NO_PERMISSION = requires("open")
_FORWARDED_KEYS = frozenset(
    {"type", "asgi", "http_version", "method", "scheme", "query_string", "root_path", "client", "server", "extensions"}
)
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Ignore `HTTP_PROXY` for this connection within the server.
    ("grpc.enable_http_proxy", 0),
)

Metadata = tuple[tuple[str, str], ...]


class ProtocolProxy:
    """Provide proxies to protocols on other ports.

    Args:
        port_names: names of the protocols with HTTP ports of their own.
        port: returns the port of a protocol, once the server is complete.
        grpc: returns the gRPC server, once the server is complete; None if gRPC is disabled.
    """

    def __init__(
        self,
        port_names: "Sequence[str]" = (),
        port: "Callable[[str], Listener] | None" = None,
        grpc: "Callable[[], GrpcServer | None] | None" = None,
    ) -> None:
        self._ports = {} if port is None else {name: partial(port, name) for name in port_names}
        self._grpc = grpc

    @property
    def ports(self) -> Mapping[str, int]:
        """Return the ports by the name of the protocol, without disabled protocols."""
        ports = {name: port().port for name, port in self._ports.items()}
        server = self._grpc and self._grpc()
        return ports if server is None else {"grpc": server.port, **ports}

    @property
    def handlers(self) -> list[HTTPRouteHandler | ASGIRouteHandler]:
        """Return the handlers of the enabled protocols."""
        handlers: list[HTTPRouteHandler | ASGIRouteHandler] = [
            asgi(path, is_mount=True, copy_scope=True, opt=_NO_PERMISSION)(_strip_prefix(port, path))
            for port, path in ((port, f"/page/{name}") for name, port in self._ports.items())
        ]
        if self._grpc is not None:
            handlers.append(self._grpc_handler(self._grpc))
        return handlers

    def _grpc_handler(self, find_server: "Callable[[], GrpcServer | None]") -> HTTPRouteHandler:
        @post(f"/page/grpc/{_INFER}", status_code=200, opt=requires("infer", rate_limited=False))
        async def call(request: HttpRequest) -> Response[Any]:
            server = find_server()
            if server is None:
                raise NotFoundException
            body = await request.body()
            # Parse in a thread, but wait for the call in the event loop, because threads are few.
            message = await asyncio.to_thread(_parse_request, body)
            return await _call(server.internal_address, message, _credentials(request))

        return call


def _parse_request(body: bytes) -> Any:
    """Parse a ModelInferRequest in protobuf's JSON. Reject an invalid one with INVALID_REQUEST."""
    try:
        content = json.loads(body)
        if not isinstance(content, dict):
            raise invalid("Expected a ModelInferRequest in protobuf's JSON, got no object")
        return ParseDict(cast("dict[str, Any]", content), message_class("inference.ModelInferRequest")())
    except SystemError:
        # protobuf cannot look up the name of a field with an unpaired surrogate.
        raise invalid("Expected a ModelInferRequest in protobuf's JSON, got an unpaired surrogate") from None
    except (ValueError, ParseError, RecursionError) as error:
        raise invalid(f"Expected a ModelInferRequest in protobuf's JSON: {error}") from None


async def _call(target: str, message: Any, credentials: Metadata) -> Response[Any]:
    """Make the call, and return its response in protobuf's JSON."""
    async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
        infer: Any = channel.unary_unary(
            f"/{_INFER}",
            request_serializer=message_class("inference.ModelInferRequest").SerializeToString,
            response_deserializer=message_class("inference.ModelInferResponse").FromString,
        )
        try:
            answer = await infer(message, timeout=_TIMEOUT_SECONDS, metadata=credentials)
        except grpc.aio.AioRpcError as error:
            raise invalid(f"{error.code().name}: {error.details()}") from None
    content = await asyncio.to_thread(MessageToJson, answer, preserving_proto_field_name=True, indent=None)
    return json_response(content.encode())


def _credentials(request: HttpRequest) -> Metadata:
    """Return the client's credentials as metadata: the gRPC server authorizes and counts the request."""
    headers = ((name, request.headers.get(name)) for name in (AUTHORIZATION, KEY_HEADER))
    return tuple((name, value) for name, value in headers if value and value.isascii() and value.isprintable())


def _strip_prefix(port: "Callable[[], Listener]", prefix: str) -> ASGIApp:
    """Return the application of a port, mounted under a prefix that it does not see."""

    async def unprefixed_app(scope: Scope, receive: Receive, send: Send) -> None:
        raw_path = scope["raw_path"].partition(prefix.encode())[2]
        # The main application already compresses the response.
        headers = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        # Drop the state of the main application, such as its response headers.
        scope_fields = {name: value for name, value in scope.items() if name in _FORWARDED_KEYS}
        unprefixed_scope: Any = {
            **scope_fields,
            "path": raw_path.decode("latin-1"),
            "raw_path": raw_path,
            "headers": headers,
            "state": {},
        }
        await port().app(unprefixed_scope, receive, send)

    return unprefixed_app
