"""Run a gRPC server over stand-in models in a thread, with a plain channel to it."""

import asyncio
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, cast

import grpc
import pytest

from app.core.engine.engine import Engine
from app.core.engine.events import InferenceObserver
from app.core.proto import message_class
from app.core.protocols.grpc_protocol import GrpcProtocol
from app.core.server.grpc.server import GrpcServer
from app.core.settings.model import ModelSource
from app.core.settings.server import ServerSettings
from tasks.inference.limits import Limits
from tests.support.data.images import encode_image, rectangle
from tests.support.models.engines import Load, engine_of
from tests.support.protocols import GRPC_PROTOCOLS, attach_plugins
from tests.support.servers.apps import MAX_REQUEST_BYTES, load_test_model, model_source

IMAGE = encode_image(rectangle())
SERVICE = "inference.GRPCInferenceService"
LIMITS = Limits(max_inputs=8, max_request_bytes=MAX_REQUEST_BYTES)

Metadata = Sequence[tuple[str, str]]


def local_settings(port: int = 0, drain_timeout: int = 1) -> ServerSettings:
    return ServerSettings(
        host="127.0.0.1", grpc_port=port, max_request_bytes=MAX_REQUEST_BYTES, drain_timeout=drain_timeout
    )


def raises_status(code: grpc.StatusCode, match: str | None = None) -> "pytest.RaisesExc[grpc.RpcError]":
    """Expect that a call ends with an error of this status, whose text matches a pattern."""
    return pytest.raises(grpc.RpcError, match=match, check=lambda error: cast("grpc.Call", error).code() is code)


def message(name: str, /, **fields: Any) -> Any:
    return message_class(f"inference.{name}")(**fields)


def number_request(values: Sequence[float], model: str = "echo-fp32", **fields: Any) -> Any:
    """Return an inference of a row of numbers."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "contents": {"fp32_contents": values}}
    return message("ModelInferRequest", model_name=model, inputs=[tensor], **fields)


def image_request(model: str, *, image: bytes = IMAGE, count: int = 1, **fields: Any) -> Any:
    """Return an inference of the same image, `count` times."""
    tensor = {"name": "image", "datatype": "BYTES", "shape": [count], "contents": {"bytes_contents": [image] * count}}
    return message("ModelInferRequest", **{"model_name": model, "inputs": [tensor], **fields})


def build_engine(names: Iterable[str], **options: Any) -> Engine:
    """Return an engine of models called `names`, with the options of `build_engine_from_sources`."""
    return build_engine_from_sources([model_source(name) for name in names], load_test_model, **options)


def build_engine_from_sources(
    sources: Sequence[ModelSource],
    load: Load,
    *,
    loaded: bool = True,
    observers: Sequence[InferenceObserver] = (),
    limits: Limits = LIMITS,
    **options: Any,
) -> Engine:
    """Return an engine with the options of `engine_of`."""
    options["loaded"] = None if loaded else ()
    return attach_plugins(engine_of(sources, load, *observers, limits=limits, **options))


class GrpcTestClient:
    """A client of a running server.

    Attributes:
        port: the server's.
        second_port: the server's second port; None without one.
        channel: to the server.
        trailing_metadata: the metadata that came behind the last answer, or the last error.
    """

    def __init__(self, server: GrpcServer, loop: asyncio.AbstractEventLoop) -> None:
        self.port = server.port
        self.second_port = server.more_ports.get("second")
        self.channel: Any = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        self._server = server
        self._loop = loop
        self.trailing_metadata: dict[str, str] = {}

    def stop_server(self) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop)

    def call_bytes(self, method: str, data: bytes, metadata: Metadata = (), **options: Any) -> bytes:
        """Call a unary method of any service with serialized messages."""
        rpc = self.channel.unary_unary(method)
        response, finished_rpc = rpc.with_call(data, metadata=metadata, timeout=30, **options)
        self.trailing_metadata = dict(finished_rpc.trailing_metadata())
        return response

    def call(self, method: str, request: Any = None, metadata: Metadata = (), **options: Any) -> Any:
        """Call a unary method of the inference service."""
        data = b"" if request is None else request.SerializeToString()
        response = self.call_bytes(f"/{SERVICE}/{method}", data, metadata, **options)
        return message_class(f"inference.{method}Response").FromString(response)

    def call_error(self, method: str, request: Any, metadata: Metadata = ()) -> tuple[grpc.StatusCode, str]:
        """Return the status and the message of a rejected call."""
        try:
            response = self.call(method, request, metadata)
        except grpc.RpcError as error:
            failed_rpc: Any = error
            self.trailing_metadata = dict(failed_rpc.trailing_metadata())
            return failed_rpc.code(), failed_rpc.details()
        raise AssertionError(response)

    def stream(self, requests: Iterable[Any], metadata: Metadata = ()) -> Iterator[Any]:
        rpc = self.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
        response_type = message_class("inference.ModelStreamInferResponse")
        data = (request.SerializeToString() for request in requests)
        return (response_type.FromString(message) for message in rpc(data, metadata=metadata, timeout=30))


@contextmanager
def run_grpc_server(
    engine: Engine,
    *,
    port: int = 0,
    drain_timeout: int = 5,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    protocols: Sequence[GrpcProtocol] = GRPC_PROTOCOLS,
    second_port: int | None = None,
) -> Generator[GrpcTestClient]:
    """Run a server over `engine`, and close both at the end."""
    server = GrpcServer(
        engine,
        protocols,
        local_settings(port, drain_timeout),
        more_ports={} if second_port is None else {"second": second_port},
        interceptors=interceptors,
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
        client = GrpcTestClient(server, loop)
        try:
            yield client
        finally:
            client.stop_server().result(60)
            client.channel.close()
    finally:
        engine.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
