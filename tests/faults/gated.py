"""A model that says that a call has begun, and ends it when it is told to; and requests to it by every way in."""

import http.client
import json
import os
import struct
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc

from app.proto import message_class
from tests.support.chariot import image_input
from tests.support.pictures import encoded, rectangle

__all__ = ("BODY", "GRPC_METHOD", "GRPC_REQUEST", "TFS_BODY", "Gated", "answer", "asked", "made", "method")

_MODEL = """
import os
from pathlib import Path

FOLDER = Path({folder!r})

class Gated:
    def predict(self, image, parameters):
        began = os.open(FOLDER / "began", os.O_RDWR)
        os.write(began, b"x")
        gate = os.open(FOLDER / "gate", os.O_RDONLY)
        os.read(gate, 1)
        os.close(began)
        os.close(gate)
        return []
"""
_PICTURE = encoded(rectangle())
BODY = json.dumps({"inputs": [image_input()]})
TFS_BODY = json.dumps({"instances": [{"b64": image_input()["data"][0]}]})
GRPC_METHOD = "/inference.GRPCInferenceService/ModelInfer"
GRPC_REQUEST = message_class("inference.ModelInferRequest")(
    model_name="gated",
    inputs=[{"name": "image", "datatype": "BYTES", "shape": [1]}],
    raw_input_contents=[struct.pack("<I", len(_PICTURE)) + _PICTURE],
).SerializeToString()


class Gated:
    """The folder of such a model.

    Args:
        folder: where to make it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        pipes = folder.with_name(f"{folder.name}-pipes")
        pipes.mkdir()
        (folder / "model.py").write_text(_MODEL.format(folder=str(pipes)))
        settings = {"name": "gated", "task_type": "OBJECT_DETECTION", "implementation": "model:Gated"}
        (folder / "model-settings.json").write_text(json.dumps(settings))
        for pipe in ("began", "gate"):
            os.mkfifo(pipes / pipe)
        self.arguments = ("--model", str(folder), "--allow-code")
        # Open for reading and writing: neither side waits for the other, and nothing is lost in between.
        self._began = os.open(pipes / "began", os.O_RDWR)
        self._gate = os.open(pipes / "gate", os.O_RDWR)

    def wait(self) -> None:
        """Until one more call has begun."""
        assert os.read(self._began, 1) == b"x"

    def let_go(self, calls: int = 1) -> None:
        """Let calls come to their end."""
        os.write(self._gate, b"g" * calls)

    def close(self) -> None:
        """Let go of the pipes."""
        os.close(self._began)
        os.close(self._gate)


@contextmanager
def made(folder: Path) -> Generator[Gated]:
    """The folder of such a model, for as long as it is entered."""
    with closing(Gated(folder)) as gated:
        yield gated


@contextmanager
def asked(
    address: str, path: str = "/infer", body: str = BODY, **headers: str
) -> Generator[http.client.HTTPConnection]:
    """A connection over which a request has gone, and no answer been read."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=180)
    with closing(connection):
        connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
        yield connection


def method(channel: grpc.Channel, name: str) -> Any:
    """What calls a method with one message of bytes, for one."""
    untyped: Any = channel
    return untyped.unary_unary(name)


def answer(connection: http.client.HTTPConnection) -> tuple[int, Any]:
    """The status of an answer, and its JSON."""
    response = connection.getresponse()
    return response.status, json.loads(response.read())
