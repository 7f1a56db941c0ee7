"""A stand-in for a server of Chariot's first protocol, whose answers a test chooses."""

import json
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """A server that says nothing when a client stops and does not wait for its answers."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def fake_chariot(answer: Callable[[int, bytes], tuple[int, object]]) -> Generator[str]:
    """Yield the URL of a chariot-v2 server; `answer` returns status and JSON for a number and body.

    Clients that are refused may repeat their request at once.
    """
    lock, count = threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received = self.rfile.read(int(self.headers["content-length"]))
            with lock:
                count[0] += 1
                number = count[0]
            status, content = answer(number, received)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
