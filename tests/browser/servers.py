"""Models and recorded inferences of the servers that the tests of this folder share."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import httpx
import numpy as np

from tests.browser.try_view import IMAGES, MODELS
from tests.core.runtimes.onnxruntime import graphs
from tests.support.command_line import output_of
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.models.model_folders import write_model
from tests.support.servers.ports import reserve_ports
from tests.support.servers.server_process import ServerProcess

HTML_NAME = "<img src=x onerror=alert(1)>"
"""The name of a model, and text in metadata."""

DRIFT_WINDOW = 30
TEXT_MODELS = {
    "text_generation": """
class Model:
    def predict(self, text: str) -> str:
        return f"{text}, {text}"
""",
}

VERSION = """
class Model:
    def predict(self, image):
        score = 0.9 if image[0, 0, {channel}] > 127 else 0.2
        return {{"cat": score, "dog": 1 - score}}
"""


class RecordingServer(NamedTuple):
    """The address of a server that records, and the folder of a model with two versions."""

    address: str
    versions: Path


class StoppableServer:
    """A server that a test may stop, and start again at the same address."""

    def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
        (port,) = reserve_ports(1)
        self._arguments, self._environment = (*arguments, "--port", str(port)), environment
        self.start()
        self.address = self._process.address

    def start(self) -> None:
        self._process = ServerProcess(*self._arguments, environment=self._environment)

    def stop(self) -> int:
        """Return its exit status."""
        return self._process.stop()

    def kill(self) -> None:
        self._process.process.kill()
        self._process.wait()


def link_models(repository: Path, *names: str) -> None:
    for name in names:
        (repository / name).symlink_to(MODELS / name)


def write_pose(folder: Path) -> None:
    """Write a model that finds a person with one keypoint that is sure, and one that is not.

    The letterbox halves an image of 256x128 to 128x64, and puts it 32 pixels below the top.
    """
    box, shown, hidden = [64, 64, 60, 50], [60, 60, 0.9], [70, 70, 0.1]
    folder.mkdir()
    graphs.constant(
        folder / "model.onnx",
        {"output0": graphs.raw([[*box, 0.75, *shown, *hidden]])},
        shape=("b", 3, 128, 128),
        properties=graphs.properties("pose", ("person",), (128, 128), kpt_shape="[2, 3]"),
    )


def write_versions(folder: Path, **settings: Any) -> None:
    """Write two versions of a classifier; a server loads the first, which has the settings."""
    task = "IMAGE_CLASSIFICATION"
    write_model(folder / "1", VERSION.format(channel=0), task_type=task, **settings)
    write_model(folder / "2", VERSION.format(channel=1), task_type=task)
    (folder / "model-settings.json").write_text(json.dumps({"versions": ["1"]}))


def crops(seed: int, number: int, light: float) -> Iterator[bytes]:
    """Yield crops of a scene with slightly different brightness."""
    random = np.random.default_rng(seed)
    scene = cv2.imread(str(IMAGES / "scene.jpg"))
    assert scene is not None
    for _ in range(number):
        side = int(random.integers(240, 420))
        top, left = int(random.integers(480 - side)), int(random.integers(640 - side))
        crop = scene[top : top + side, left : left + side] * (light * random.uniform(0.9, 1.1))
        yield cv2.imencode(".jpg", np.clip(crop, 0, 255).astype(np.uint8))[1].tobytes()


def write_monitored(folder: Path, images: Path) -> None:
    """Write a detector with a baseline of images, which this writes to the folder `images`."""
    shutil.copytree(MODELS / "detector", folder)
    for index, image in enumerate(crops(1, 40, 1.0)):
        (images / f"{index}.jpg").write_bytes(image)
    output_of("drift", "baseline", images, "--model", folder, "--out", folder / "drift-baseline.npz")


def send_recorded(address: str) -> None:
    """Send 3 detections in the north, 2 classifications in the south and 1 request that is rejected."""
    with httpx.Client(base_url=address, timeout=60) as client:
        for altitude in (100, 110, 120):
            assert _post(client, "detector", "scene.jpg", "north", altitude) == 200
        for altitude in (200, 210):
            assert _post(client, "classifier", "shape.jpg", "south", altitude) == 200
        assert client.post("/v2/models/m-detector/infer", json={"inputs": []}).status_code == 400


def _post(client: httpx.Client, model: str, image: str, camera: str, altitude: int) -> int:
    metadata = [
        {"key": "camera", "type": "str", "value": camera},
        {"key": "altitude", "type": "int", "value": str(altitude)},
        {"key": "latitude", "type": "float", "value": {"north": "53.55", "south": "48.14"}[camera]},
        {"key": "longitude", "type": "float", "value": "10.0"},
        {"key": "note", "type": "str", "value": HTML_NAME},
    ]
    tensor = image_input(encode_base64((IMAGES / image).read_bytes()), metadata=metadata)
    return client.post(f"/v2/models/m-{model}/infer", json={"inputs": [tensor]}).status_code
