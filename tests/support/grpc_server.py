"""Run a gRPC server over stand-in models in a thread, with a plain channel to it."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import grpc

from app.engine.admission import Bounds
from app.engine.engine import Engine
from app.engine.events import InferenceObserver
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.engine.servable import Servable
from app.proto import message_class
from app.protocols import GRPC_PROTOCOLS
from app.server.grpc import GrpcServer
from app.settings.model import ModelSource
from tasks.exchange.limits import Limits
from tests.support.served import load_any, source

MAX_REQUEST_BYTES = 2_000_000

SERVICE = "inference.GRPCInferenceService"

Metadata = Sequence[tuple[str, str]]


def message(name: str, /, **fields: Any) -> Any:
    """Return a message of the protocol."""
    return message_class(f"inference.{name}")(**fields)


def built(
    names: Iterable[str],
    *,
    loaded: bool = True,
    observers: Sequence[InferenceObserver] = (),
    limits: Limits | None = None,
    bounds: Bounds | None = None,
) -> Engine:
    """Return an engine with the models `names`."""
    sources = [source(name) for name in names]
    return over(sources, load_any, loaded=loaded, observers=observers, limits=limits, bounds=bounds)


def over(
    sources: Sequence[ModelSource],
    load: Callable[[ModelSource], Servable],
    *,
    loaded: bool = True,
    observers: Sequence[InferenceObserver] = (),
    limits: Limits | None = None,
    bounds: Bounds | None = None,
) -> Engine:
    """Return an engine with the models of `sources`."""
    registry = Registry(sources)
    if loaded:
        for source in sources:
            registry.load(source, load)
    limits = limits or Limits(max_inputs=8, max_request_bytes=MAX_REQUEST_BYTES)
    repository = Repository(registry, lambda: sources, load)
    return Engine(repository, observers, limits, workers=2, bounds=bounds or Bounds())


class Peer:
    """A client of a running server.

    Attributes:
        port: the server's.
        channel: to the server.
        trailing: the metadata that came behind the last answer, or the last error.
    """

    def __init__(self, server: GrpcServer, loop: asyncio.AbstractEventLoop) -> None:
        self.port = server.port
        self.channel: Any = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        self._server = server
        self._loop = loop
        self.trailing: dict[str, str] = {}

    def stopped(self) -> Future[None]:
        """Stop the server and wait until it has stopped."""
        return asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop)

    def bytes(self, method: str, data: bytes, metadata: Metadata = (), **options: Any) -> bytes:
        """Call a unary method of any service with serialized messages."""
        call = self.channel.unary_unary(method)
        answer, metadata_call = call.with_call(data, metadata=metadata, timeout=30, **options)
        self.trailing = dict(metadata_call.trailing_metadata())
        return answer

    def call(self, method: str, request: Any = None, metadata: Metadata = (), **options: Any) -> Any:
        """Call a unary method of the inference service."""
        data = b"" if request is None else request.SerializeToString()
        answer = self.bytes(f"/{SERVICE}/{method}", data, metadata, **options)
        return message_class(f"inference.{method}Response").FromString(answer)

    def refused(self, method: str, request: Any, metadata: Metadata = ()) -> tuple[grpc.StatusCode, str]:
        """Return the status and the message of a refused call."""
        try:
            answer = self.call(method, request, metadata)
        except grpc.RpcError as error:
            metadata_call: Any = error
            self.trailing = dict(metadata_call.trailing_metadata())
            return metadata_call.code(), metadata_call.details()
        raise AssertionError(answer)

    def stream(self, requests: Iterable[Any], metadata: Metadata = ()) -> Iterator[Any]:
        """Call `ModelStreamInfer`."""
        call = self.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
        kind = message_class("inference.ModelStreamInferResponse")
        data = (request.SerializeToString() for request in requests)
        return (kind.FromString(message) for message in call(data, metadata=metadata, timeout=30))


@contextmanager
def serving_grpc(
    engine: Engine,
    *,
    port: int = 0,
    drain_timeout: float = 5,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> Generator[Peer]:
    """Run a server over `engine`, and close both at the end."""
    server = GrpcServer(
        engine,
        GRPC_PROTOCOLS,
        host="127.0.0.1",
        port=port,
        max_request_bytes=MAX_REQUEST_BYTES,
        drain_timeout=drain_timeout,
        interceptors=interceptors,
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
        peer = Peer(server, loop)
        try:
            yield peer
        finally:
            peer.stopped().result(60)
            peer.channel.close()
    finally:
        engine.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
