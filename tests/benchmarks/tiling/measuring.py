"""Answer large images with the fixture models, with and without tiles."""

import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.assembly.discovery import model_at
from app.core.assembly.models import load
from app.core.engine.models.servable import Servable
from app.core.plugins import registry
from app.plugins.tiling.parameters import TilingSettings
from app.plugins.tiling.tile_shapes import Outlines
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype, InputTensor, Tensor
from tests.benchmarks.tiling.figures import Compared, compared, compared_boxes
from tests.benchmarks.tiling.scenes import DrawnScene, Pixels
from tests.support.data.requests import file_input, request
from tests.support.servers.server_process import ROOT

TILE, OVERLAP, THRESHOLD = 192, 0.2, 0.3
_MEGAPIXELS = 64


def served(model: str, merge: str = "join") -> Servable:
    """Return a fixture model; requests with `tile` get tiles."""
    (source,) = model_at(ROOT / "fixtures" / "models" / model)
    tiling = msgspec.convert({"size": False, "merge": merge, "max_tiles": 1000}, TilingSettings)
    values = {name: getattr(source.settings, name) for name in source.settings.__struct_fields__}
    settings = registry().model_settings(**{**values, "tiling": tiling})
    return load(msgspec.structs.replace(source, settings=settings))


def predicted(servable: Servable, pixels: Pixels, **parameters: object) -> Any:
    """Return the prediction for raw pixels."""
    return ask(servable, Tensor(name="image", datatype=Datatype.UINT8, data=pixels, parameters=parameters))


def ask(servable: Servable, tensor: InputTensor) -> Any:
    """Return the prediction for one input with one image."""
    return servable.predict(request(tensor), Limits()).outputs[0].predictions[0]


def compare(prediction: Any, scene: DrawnScene) -> Compared:
    """Compare a prediction of any geometry with a scene."""
    contours: Sequence[Any] | None = getattr(prediction, "contours", None)
    if contours is not None:
        shapes, count = Outlines([*contours, *scene.contours]), len(contours)
        areas = np.array([shapes.area(index) for index in range(count + len(scene.contours))])
        return compared(
            prediction.labels, prediction.scores, areas[:count], scene.labels, areas[count:],
            lambda: _mask_ious(shapes, areas, count),
        )  # fmt: skip
    return compared_boxes(prediction.labels, prediction.scores, prediction.boxes, scene.labels, scene.boxes)


def _mask_ious(shapes: Outlines, areas: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    truth = np.arange(count, len(areas))
    found = np.zeros((count, len(truth)))
    for index in range(count):
        bounds, own = shapes.bounds[truth], shapes.bounds[index]
        near = truth[(np.minimum(bounds[:, 2:], own[2:]) > np.maximum(bounds[:, :2], own[:2])).all(axis=1)]
        shared = shapes.intersections(index, near)
        found[index, near - count] = shared / (areas[index] + areas[near] - shared)
    return found


def cost_of_a_tile(model: str) -> tuple[float, float]:
    """Return the CPU milliseconds of a tile, and of an image of its size."""
    servable = served(model)
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (1200, 1600, 3), np.uint8)
    images = [np.ascontiguousarray(pixels[:TILE, left : left + TILE]) for left in range(0, 1400, 14)]
    count = 88

    def tiles() -> None:
        predicted(servable, pixels, tile=TILE, overlap=OVERLAP)

    def single() -> None:
        for image in images[:count]:
            predicted(servable, image)

    best = {"tiles": 1e9, "single": 1e9}
    for _ in range(5):
        for name, run in (("tiles", tiles), ("single", single)):
            started = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - started)
    return 1000 * best["tiles"] / (count + 1), 1000 * best["single"] / count


def peak_memory(tile: int) -> float:
    """Return the peak MB of a process that answers one JPEG of 64 megapixels, with tiles of this side; 0 for none."""
    program = f"from tests.benchmarks.tiling.measuring import _answer_large; _answer_large({tile})"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(ran.stdout)


def _answer_large(tile: int) -> None:
    servable = served("detector")
    noise = np.random.default_rng(2).integers(0, 256, (40, 40, 3), np.uint8)
    side = int((_MEGAPIXELS * 1e6) ** 0.5)
    jpeg = cv2.imencode(".jpg", cv2.resize(noise, (side, side)))[1].tobytes()
    ask(servable, file_input(jpeg, tile=tile))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
