"""A KServe V1 engine in a few lines, over a real socket, without our code."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faulty = False
    model = "half"

    def do_GET(self) -> None:
        match unquote(self.path):
            case "/":
                self._reply(200, {"status": "alive"})
            case "/v1/models":
                self._reply(200, {"models": [self.model]})
            case path if path == f"/v1/models/{self.model}":
                self._reply(200, {"name": self.model, "ready": True})
            case _:
                self._reply(404, {"error": f"no {self.path}"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if unquote(self.path) != f"/v1/models/{self.model}:predict":
            self._reply(404, {"error": f"no {self.path}"})
            return
        try:
            predictions = [instance / 2 + 2 for instance in json.loads(body)["instances"]]
        except (KeyError, TypeError, ValueError) as error:
            self._reply(400, {"error": repr(error)})
            return
        self._reply(200, {"predictions": predictions[:1] if self.faulty else predictions})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name in BaseHTTPRequestHandler
        pass

    def _reply(self, status: int, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def tiny_engine(*, faulty: bool = False, model: str = "half") -> Generator[str]:
    """Run an engine without CloudEvents and yield its URL; a `faulty` one predicts only the first instance."""
    handler = type("Answers", (_Handler,), {"faulty": faulty, "model": model})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
