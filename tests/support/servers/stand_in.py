"""Run stand-ins for HTTP servers, whose answers a test chooses."""

import itertools
import json
import ssl
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """A request, with header names in small letters."""

    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class _Server(ThreadingHTTPServer):
    """A server that says nothing when a client stops and does not wait for its answers."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def run_stand_in(answer: Callable[[Request], Answer], context: ssl.SSLContext | None = None) -> Generator[str]:
    """Yield the host and port of a server on this machine, whose threads call `answer`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            status, fields, content = answer(Request(self.path, headers, body))
            self.send_response(status)
            for name, value in {**fields, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    server = _Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def run_otlp_collector(received: list[tuple[str, bytes]]) -> Generator[str]:
    """Yield the URL of an OTLP collector, and keep the path and body of every request."""

    def answer(request: Request) -> Answer:
        received.append((request.path, request.body))
        return 200, {}, b""

    with run_stand_in(answer) as address:
        yield f"http://{address}"


@contextmanager
def fake_chariot(answer: Callable[[int, bytes], tuple[int, object]]) -> Generator[str]:
    """Yield the URL of a chariot-v2 server; `answer` returns status and JSON for a number and body.

    Clients that are rejected may repeat their request at once.
    """
    numbers = itertools.count(1)

    def answer_request(request: Request) -> Answer:
        status, content = answer(next(numbers), request.body)
        return status, {"Retry-After": "0"}, json.dumps(content).encode()

    with run_stand_in(answer_request) as address:
        yield f"http://{address}"
