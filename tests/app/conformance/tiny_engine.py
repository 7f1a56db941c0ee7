"""An engine of KServe's V1 in a few lines, over a real socket; none of ours is in it."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faulty = False

    def do_GET(self) -> None:
        match self.path:
            case "/":
                self._say(200, {"status": "alive"})
            case "/v1/models":
                self._say(200, {"models": ["half"]})
            case "/v1/models/half":
                self._say(200, {"name": "half", "ready": True})
            case _:
                self._say(404, {"error": f"no {self.path}"})

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/v1/models/half:predict":
            self._say(404, {"error": f"no {self.path}"})
            return
        try:
            predictions = [each / 2 + 2 for each in json.loads(asked)["instances"]]
        except (KeyError, TypeError, ValueError) as error:
            self._say(400, {"error": repr(error)})
            return
        self._say(200, {"predictions": predictions[:1] if self.faulty else predictions})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  BaseHTTPRequestHandler calls it so
        pass

    def _say(self, status: int, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def tiny_engine(*, faulty: bool = False) -> Generator[str]:
    """The URL of an engine, which knows no events; a `faulty` one predicts nothing but the first instance."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Answers", (_Answers,), {"faulty": faulty})) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
