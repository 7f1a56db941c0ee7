"""Protocols that a browser cannot speak to from the page: gRPC, and what listens on a port of its own.

The page shows what goes over each wire, so both are reached by way of the main port, and answer as they would have
there: the other application is the same one, and a gRPC call goes over a connection of its own.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from litestar import Response, asgi, post
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from app.protocols.pb import message_class
from app.protocols.protocol import HttpRequest, json_response
from app.server.listening import shown

if TYPE_CHECKING:
    from app.server.grpc import GrpcServer

__all__ = ("Reach",)

_TENSORFLOW_SERVING = "/page/tensorflow-serving"
_INFER = "inference.GRPCInferenceService/ModelInfer"
_SECONDS = 120
_ASGI = frozenset(
    {"type", "asgi", "http_version", "method", "scheme", "query_string", "root_path", "client", "server", "extensions"}
)
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # The way to this very server is not by way of what the environment names for the way out.
    ("grpc.enable_http_proxy", 0),
)


class Reach:
    """Ways to what listens beside the main port.

    Args:
        host: that the server listens on.
        grpc_server: None where there is none.
        tensorflow_serving: the application on that port; None where there is none.
        tensorflow_serving_port: 0 while it is not known.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        grpc_server: "GrpcServer | None" = None,
        tensorflow_serving: ASGIApp | None = None,
        tensorflow_serving_port: int = 0,
    ) -> None:
        self._host = host
        self._grpc = grpc_server
        self._tensorflow_serving = tensorflow_serving
        self.tensorflow_serving_port = tensorflow_serving_port

    @property
    def ports(self) -> Mapping[str, int | None]:
        """The ports by what listens there, None for what does not."""
        return {
            "grpc": self._grpc.port if self._grpc is not None else None,
            "tensorflow_serving": None if self._tensorflow_serving is None else self.tensorflow_serving_port,
        }

    @property
    def handlers(self) -> list[HTTPRouteHandler | ASGIRouteHandler]:
        """Only of what there is."""
        found: list[HTTPRouteHandler | ASGIRouteHandler] = []
        if self._tensorflow_serving is not None:
            found.append(asgi(_TENSORFLOW_SERVING, is_mount=True, copy_scope=True)(_moved(self._tensorflow_serving)))
        if self._grpc is not None:
            found.append(self._grpc_handler(self._grpc))
        return found

    def _grpc_handler(self, server: "GrpcServer") -> HTTPRouteHandler:
        @post(f"/page/grpc/{_INFER}", status_code=200)
        async def call(request: HttpRequest) -> Response[Any]:
            body = await request.body()
            return await asyncio.to_thread(_call, f"{shown(self._host)}:{server.port}", body)

        return call


def _call(target: str, body: bytes) -> Response[Any]:
    """Make the call that `body`, a ModelInferRequest in protobuf's JSON, describes; the answer in the same JSON."""
    try:
        described = json.loads(body)
        if not isinstance(described, dict):
            return _failed("Expected a ModelInferRequest in protobuf's JSON, got no object")
        asked = ParseDict(cast("dict[str, Any]", described), message_class("inference.ModelInferRequest")())
    except (ValueError, ParseError, RecursionError) as error:
        return _failed(f"Expected a ModelInferRequest in protobuf's JSON: {error}")
    with grpc.insecure_channel(target, options=_OPTIONS) as channel:
        infer: Any = channel.unary_unary(
            f"/{_INFER}",
            request_serializer=_serialized,
            response_deserializer=message_class("inference.ModelInferResponse").FromString,
        )
        try:
            answer = infer(asked, timeout=_SECONDS)
        except grpc.RpcError as error:
            status: Any = error
            return _failed(f"{status.code().name}: {status.details()}")
    found = MessageToDict(answer, preserving_proto_field_name=True)
    return json_response(json.dumps(found).encode())


def _serialized(message: Any) -> bytes:
    return message.SerializeToString()


def _failed(message: str) -> Response[Any]:
    return json_response(json.dumps({"error": message}).encode(), 400)


def _moved(app: ASGIApp) -> ASGIApp:
    """`app` under another path, which it does not see."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope["raw_path"].partition(_TENSORFLOW_SERVING.encode())[2]
        # What it answers goes through the compression of the main application, once.
        headers = [each for each in scope["headers"] if each[0] != b"accept-encoding"]
        # Without what the main application remembers of the request, its headers among it.
        plain = {name: value for name, value in scope.items() if name in _ASGI}
        moved: Any = {**plain, "path": raw.decode("latin-1"), "raw_path": raw, "headers": headers, "state": {}}
        await app(moved, receive, send)

    return answer
