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
from app.server.access.credentials import AUTHORIZATION, KEY_HEADER
from app.server.access.http import needs

if TYPE_CHECKING:
    from app.server.grpc import GrpcServer

__all__ = ("Reach",)

_TENSORFLOW_SERVING = "/page/tensorflow-serving"
_INFER = "inference.GRPCInferenceService/ModelInfer"
_SECONDS = 120
# The other application asks who sends it, and what for, by itself.
_AS_THERE = needs("open")
_ASGI = frozenset(
    {"type", "asgi", "http_version", "method", "scheme", "query_string", "root_path", "client", "server", "extensions"}
)
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # The way to this very server is not by way of what the environment names for the way out.
    ("grpc.enable_http_proxy", 0),
)

Metadata = tuple[tuple[str, str], ...]


class Reach:
    """Ways to what listens beside the main port.

    Args:
        grpc_server: None where there is none.
        tensorflow_serving: the application on that port; None where there is none.
        tensorflow_serving_port: 0 while it is not known.
    """

    def __init__(
        self,
        grpc_server: "GrpcServer | None" = None,
        tensorflow_serving: ASGIApp | None = None,
        tensorflow_serving_port: int = 0,
    ) -> None:
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
            found.append(
                asgi(_TENSORFLOW_SERVING, is_mount=True, copy_scope=True, opt=_AS_THERE)(
                    _moved(self._tensorflow_serving)
                )
            )
        if self._grpc is not None:
            found.append(self._grpc_handler(self._grpc))
        return found

    def _grpc_handler(self, server: "GrpcServer") -> HTTPRouteHandler:
        @post(f"/page/grpc/{_INFER}", status_code=200, opt=needs("infer", charged=False))
        async def call(request: HttpRequest) -> Response[Any]:
            body = await request.body()
            # Reading is work for a thread; waiting is not, and there are few threads.
            asked = await asyncio.to_thread(_read, body)
            if isinstance(asked, Response):
                return cast("Response[Any]", asked)
            return await _call(server.inside, asked, _shown_by(request))

        return call


def _read(body: bytes) -> Any:
    """The ModelInferRequest that `body` describes in protobuf's JSON, or the refusal of one that describes none."""
    try:
        described = json.loads(body)
        if not isinstance(described, dict):
            return _failed("Expected a ModelInferRequest in protobuf's JSON, got no object")
        return ParseDict(cast("dict[str, Any]", described), message_class("inference.ModelInferRequest")())
    except (ValueError, ParseError, RecursionError) as error:
        return _failed(f"Expected a ModelInferRequest in protobuf's JSON: {error}")


async def _call(target: str, asked: Any, credentials: Metadata) -> Response[Any]:
    """Make the call; the answer in protobuf's JSON."""
    async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
        infer: Any = channel.unary_unary(
            f"/{_INFER}",
            request_serializer=_serialized,
            response_deserializer=message_class("inference.ModelInferResponse").FromString,
        )
        try:
            answer = await infer(asked, timeout=_SECONDS, metadata=credentials)
        except grpc.aio.AioRpcError as error:
            return _failed(f"{error.code().name}: {error.details()}")
    return json_response(await asyncio.to_thread(_written, answer))


def _written(answer: Any) -> bytes:
    return json.dumps(MessageToDict(answer, preserving_proto_field_name=True)).encode()


def _shown_by(request: HttpRequest) -> Metadata:
    """What the sender shows, to be shown on: the other side asks for it as well, and counts the request."""
    found = ((name, request.headers.get(name)) for name in (AUTHORIZATION, KEY_HEADER))
    return tuple((name, value) for name, value in found if value and value.isascii() and value.isprintable())


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
