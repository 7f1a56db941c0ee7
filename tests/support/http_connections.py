"""Test HTTP connections alone: run a server with one small application, and send bytes to it."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from typing import Any, cast

import uvloop
from litestar.types import ASGIApp, Receive, Send
from prometheus_client import CollectorRegistry

from app.server.connections import Connections
from app.server.listening import listener
from app.server.stopping import Ending
from app.server.tls import Certificates
from app.server.transport import Transport, http_server
from app.settings.transport import TransportSettings
from tests.support.polling import wait_until_async

FILES = 4096


class Served:
    """A server, and the requests that its application saw.

    Attributes:
        port: what it listens on.
        metrics: of its connections.
        gate: what a request to /wait waits for.
        left: set when the sender of a request to /wait has left.
        stop: stops the server.
    """

    def __init__(self, port: int, metrics: CollectorRegistry, transport: Transport) -> None:
        self.port = port
        self.metrics = metrics
        self.transport = transport
        self.gate = threading.Event()
        self.left = threading.Event()
        self.began = threading.Event()
        self.stop: Callable[[], None] = lambda: None

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def exchange(self, sent: bytes, *, end: bool = False) -> bytes:
        """Send bytes, and return everything until the server closes the connection."""
        with closing(self.connect()) as connection:
            connection.sendall(sent)
            if end:
                connection.shutdown(socket.SHUT_WR)
            return everything(connection)

    def counted(self, name: str, **labels: str) -> float:
        return self.metrics.get_sample_value(name, labels) or 0.0


def everything(connection: socket.socket) -> bytes:
    """Return everything until the other side closes the connection."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def answers(received: bytes) -> list[tuple[int, Any]]:
    """Return status and body of each response; every response has a length."""
    found: list[tuple[int, Any]] = []
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status == 100:
            continue
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(fields[b"content-length"])
        found.append((status, json.loads(received[:size])))
        received = received[size:]
    return found


@contextmanager
def served(
    settings: TransportSettings | None = None,
    certificates: Certificates | None = None,
    files: int = FILES,
    timeout: float = 3600.0,
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Generator[Served]:
    """Run a server with an application that returns each request as JSON.

    /wait answers when it is released, /started sends its body then, /early answers before it has read the body, /much
    answers with a great deal.
    A `timeout` of the drain that passes does not end the process, which is that of the tests here.
    """
    metrics = CollectorRegistry()
    connections = Connections(settings or TransportSettings(), metrics, files)
    transport = Transport(connections=connections, certificates=certificates)
    with listener("127.0.0.1", 0) as listening:
        found = Served(listening.getsockname()[1], metrics, transport)
        with running(_application(found), transport, listening, timeout=timeout, loop=loop) as found.stop:
            try:
                yield found
            finally:
                found.gate.set()


@contextmanager
def running(
    app: ASGIApp,
    transport: Transport,
    listening: socket.socket,
    *,
    timeout: float = 3600.0,
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Generator[Callable[[], None]]:
    """Run the HTTP server of any application in a thread, and yield what tells it to stop."""
    ending = Ending(retire=lambda: None, end=lambda: None, delay=0.0, timeout=timeout)
    server = http_server(app, transport, ending)
    started = threading.Event()

    def stop() -> None:
        server.should_exit = True

    async def run() -> None:
        task = asyncio.create_task(server.serve(sockets=[listening]))
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


class AnyApplication:
    """An application that hands each request to another one, which a test may change between requests."""

    def __init__(self) -> None:
        self.current: ASGIApp | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
            return
        assert self.current is not None
        await self.current(scope, receive, send)


@contextmanager
def serving_any() -> Generator[tuple[AnyApplication, str]]:
    """Run a server of `AnyApplication`, and yield it with the server's URL."""
    connections = Connections(TransportSettings(), CollectorRegistry(), FILES)
    transport, app = Transport(connections=connections, certificates=None), AnyApplication()
    with listener("127.0.0.1", 0) as listening, running(app, transport, listening):
        yield app, f"http://127.0.0.1:{listening.getsockname()[1]}"


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    for kind in ("startup", "shutdown"):
        await receive()
        await send(cast("Any", {"type": f"lifespan.{kind}.complete"}))


def _application(served: Served) -> ASGIApp:
    async def answer(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
            return
        path, body = scope["path"], b""
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        while path != "/early":
            message: Any = await receive()
            if message["type"] == "http.disconnect":
                served.left.set()
                return
            body += message["body"]
            if not message["more_body"]:
                break
        if path == "/wait":
            served.began.set()
            waiting = asyncio.get_running_loop().run_in_executor(None, served.gate.wait)
            leaving = asyncio.ensure_future(receive())
            await asyncio.wait([waiting, leaving], return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                served.left.set()
                return
            leaving.cancel()
        payload = json.dumps({"path": path, "body": body.decode("latin-1"), "headers": headers}).encode()
        if path == "/much":
            payload += b" " * 64_000_000
        fields = [(b"content-length", str(len(payload)).encode())]
        await send(cast("Any", {"type": "http.response.start", "status": 200, "headers": fields}))
        if path == "/started":
            await asyncio.get_running_loop().run_in_executor(None, served.gate.wait)
        await send(cast("Any", {"type": "http.response.body", "body": payload}))

    return cast("ASGIApp", answer)
