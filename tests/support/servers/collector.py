"""Run a stand-in for an OTLP collector."""

import http.server
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def run_otlp_collector(received: list[tuple[str, bytes]]) -> Generator[str]:
    """Yield the collector's address, and keep the path and body of every request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
