"""Provide a model whose calls block until a test releases them, and send requests to it."""

import http.client
import json
import os
import struct
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc

from app.core.proto import message_class
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_image, rectangle
from tests.support.models.model_folders import write_model

_MODEL = """
import os
from pathlib import Path

FOLDER = Path({folder!r})

class Model:
    def predict(self, image, parameters):
        began = os.open(FOLDER / "began", os.O_RDWR)
        os.write(began, b"x")
        gate = os.open(FOLDER / "gate", os.O_RDONLY)
        os.read(gate, 1)
        os.close(began)
        os.close(gate)
        return []
"""
_IMAGE = encode_image(rectangle())
BODY = json.dumps({"inputs": [image_input()]})
TFS_BODY = json.dumps({"instances": [{"b64": image_input()["data"][0]}]})
GRPC_METHOD = "/inference.GRPCInferenceService/ModelInfer"
GRPC_REQUEST = message_class("inference.ModelInferRequest")(
    model_name="gated",
    inputs=[{"name": "image", "datatype": "BYTES", "shape": [1]}],
    raw_input_contents=[struct.pack("<I", len(_IMAGE)) + _IMAGE],
).SerializeToString()


class Gated:
    """A model in a new folder whose calls block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipes = folder.with_name(f"{folder.name}-pipes")
        pipes.mkdir()
        write_model(folder, _MODEL.format(folder=str(pipes)), name="gated")
        for pipe in ("began", "gate"):
            os.mkfifo(pipes / pipe)
        self.arguments = ("--model", str(folder), "--allow-code")
        # Opened for reading and writing, a pipe blocks neither side and keeps its data.
        self._began = os.open(pipes / "began", os.O_RDWR)
        self._gate = os.open(pipes / "gate", os.O_RDWR)

    def wait_for_call(self) -> None:
        """Wait until one more call has started."""
        assert os.read(self._began, 1) == b"x"

    def release(self, calls: int = 1) -> None:
        """Let calls return."""
        os.write(self._gate, b"g" * calls)

    def close(self) -> None:
        """Close the pipes."""
        os.close(self._began)
        os.close(self._gate)


@contextmanager
def open_request(
    address: str, path: str = "/infer", body: str = BODY, **headers: str
) -> Generator[http.client.HTTPConnection]:
    """Send a request, and yield the connection before the response is read."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=180)
    with closing(connection):
        connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
        yield connection


def unary_method(channel: grpc.Channel, name: str) -> Any:
    """Return a callable for a unary method with serialized messages."""
    untyped: Any = channel
    return untyped.unary_unary(name)


def outcomes(log: Iterable[str], request_id: str | None = None) -> list[str]:
    """Return the outcome of each inference in the log, or of one request."""
    lines = [json.loads(line) for line in log if line.startswith("{")]
    inferences = [line for line in lines if line["event"] == "inference"]
    return [line["outcome"] for line in inferences if request_id in (None, line.get("request_id"))]


def read_response(connection: http.client.HTTPConnection) -> tuple[int, Any]:
    """Return the status and the JSON of a response."""
    response = connection.getresponse()
    return response.status, json.loads(response.read())
