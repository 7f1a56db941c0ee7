"""Test HTTP connections alone: run a server with one small application, and send bytes to it."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from typing import Any, cast

import uvloop
from litestar.types import ASGIApp, Receive, Send
from prometheus_client import CollectorRegistry

from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.exchange import BodyError
from app.core.server.http.inference_app import InferenceApp
from app.core.server.http.request_rules import guard_requests
from app.core.server.http.route_table import RouteTable
from app.core.server.http.transport import Transport
from app.core.server.listen import open_listen_socket
from app.core.server.serving import HttpServer, Listener, ShutdownHooks
from app.core.server.tls import Certificates
from app.core.settings.network import TransportSettings
from tests.support.polling import wait_until_async

MAX_FILES = 4096
MAX_BODY_BYTES = 64 * 1024 * 1024


class HttpTestServer:
    """A server, and the requests that its application saw.

    Attributes:
        port: what it listens on.
        metrics: of its connections.
        release: what a request to /wait waits for.
        left: set when the sender of a request to /wait has left.
        stop: stops the server.
    """

    def __init__(self, port: int, metrics: CollectorRegistry, transport: Transport) -> None:
        self.port = port
        self.metrics = metrics
        # An application without protocols limits the bodies of all requests.
        engine: Any = None
        limited = InferenceApp(engine, RouteTable(engine, []), _application(self), HttpAccess(None), transport.bodies)
        self.listener = Listener(app=guard_requests(cast("ASGIApp", limited)))
        self.release = threading.Event()
        self.client_left = threading.Event()
        self.request_started = threading.Event()
        self.stop: Callable[[], None] = lambda: None

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send_and_read(self, data: bytes) -> bytes:
        """Send bytes, and return everything until the server closes the connection."""
        with closing(self.connect()) as connection:
            connection.sendall(data)
            return read_until_closed(connection)

    def metric_value(self, name: str, **labels: str) -> float:
        return self.metrics.get_sample_value(name, labels) or 0.0


def read_until_closed(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionError:
        pass
    return received


def parse_responses(received: bytes) -> list[tuple[int, Any]]:
    """Return status and body of each response; every response has a length."""
    responses: list[tuple[int, Any]] = []
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status == 100:
            continue
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(fields[b"content-length"])
        responses.append((status, json.loads(received[:size])))
        received = received[size:]
    return responses


@contextmanager
def run_http_server(
    settings: TransportSettings | None = None,
    certificates: Certificates | None = None,
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Generator[HttpTestServer]:
    """Run a server with an application that returns each request as JSON.

    /wait answers when it is released, /early answers before it has read the body, /much answers with a great deal.
    """
    metrics = CollectorRegistry()
    transport = local_transport(settings, certificates, metrics)
    with open_listen_socket("127.0.0.1", 0) as listening_socket:
        server = HttpTestServer(listening_socket.getsockname()[1], metrics, transport)
        with run_app(server.listener, transport, listening_socket, loop=loop) as server.stop:
            try:
                yield server
            finally:
                server.release.set()


def local_transport(
    settings: TransportSettings | None = None,
    certificates: Certificates | None = None,
    metrics: CollectorRegistry | None = None,
) -> Transport:
    """Return limits, by default those of the server."""
    metrics = metrics or CollectorRegistry()
    return Transport(settings or TransportSettings(), metrics, MAX_BODY_BYTES, MAX_FILES, certificates)


@contextmanager
def run_app(
    listener: Listener,
    transport: Transport,
    listening_socket: socket.socket,
    *,
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Generator[Callable[[], None]]:
    """Run the HTTP server of a listener in a thread, and yield a function that stops it."""
    hooks = ShutdownHooks(mark_not_ready=lambda: None, start_drain=lambda: None, drain_delay=0.0, drain_timeout=3600.0)
    server = HttpServer([listener], transport, hooks)
    started = threading.Event()

    def stop() -> None:
        server.should_exit = True

    async def run() -> None:
        task = asyncio.create_task(server.serve_on([listening_socket]))
        await wait_until_async(lambda: server.started)
        started.set()
        await task

    def serve() -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert started.wait(60)
        yield stop
    finally:
        stop()
        thread.join(60)
        assert not thread.is_alive()


def _application(server: HttpTestServer) -> ASGIApp:
    async def app(scope: Any, receive: Receive, send: Send) -> None:
        path, body = scope["path"], b""
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        while path != "/early":
            try:
                message: Any = await receive()
            except BodyError as error:
                await _send_error(send, error)
                return
            if message["type"] == "http.disconnect":
                server.client_left.set()
                return
            body += message["body"]
            if not message["more_body"]:
                break
        if path == "/wait":
            server.request_started.set()
            released = asyncio.get_running_loop().run_in_executor(None, server.release.wait)
            disconnect = asyncio.ensure_future(receive())
            await asyncio.wait([released, disconnect], return_when=asyncio.FIRST_COMPLETED)
            if disconnect.done():
                server.client_left.set()
                return
            disconnect.cancel()
        payload = json.dumps({"path": path, "body": body.decode("latin-1"), "headers": headers}).encode()
        if path == "/much":
            payload += b" " * 64_000_000
        fields = [(b"content-length", str(len(payload)).encode())]
        await send(cast("Any", {"type": "http.response.start", "status": 200, "headers": fields}))
        await send(cast("Any", {"type": "http.response.body", "body": payload}))

    return cast("ASGIApp", app)


async def _send_error(send: Send, error: BodyError) -> None:
    content = json.dumps({"error": error.detail}).encode()
    headers: Mapping[str, str] = {**(error.headers or {}), "content-length": str(len(content))}
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send(cast("Any", {"type": "http.response.start", "status": error.status_code, "headers": fields}))
    await send(cast("Any", {"type": "http.response.body", "body": content}))
