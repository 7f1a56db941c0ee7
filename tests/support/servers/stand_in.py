"""Run a stand-in for an HTTP server, whose answers a test chooses."""

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
