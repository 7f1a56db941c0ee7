"""Check CVAT's SDK: ``python -m tests.clients.with_cvat URL``."""

import base64
import importlib
import json
import sys
import tempfile
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import PIL.Image

from tests.clients.checks import IMAGES, raised_error, run

# The loader of `cvat-cli task auto-annotate --function-file`.
common: Any = importlib.import_module("cvat_cli._internal.common")
masks: Any = importlib.import_module("cvat_sdk.masks")

FUNCTION_FILE = "from charioteer import cvat_function as create"


def load(**parameters: str) -> Any:
    """Return the function as the command loads it."""
    path = Path(tempfile.mkdtemp()) / "function.py"
    path.write_text(FUNCTION_FILE)
    return common.FunctionLoader(None, path, parameters).load()


def annotate(
    url: str, model: str, image_file: str, threshold: float | None = None, *, polygons: bool = False
) -> tuple[list[Any], list[Any], PIL.Image.Image]:
    """Return the annotations of an image, the records with their labels, and the image."""
    image = PIL.Image.open(IMAGES / image_file).convert("RGB")
    # The function sends the same pixels.
    path = Path(tempfile.mkdtemp())
    image.save(path / "image.png")
    encoded = base64.b64encode((path / "image.png").read_bytes()).decode()
    parameters = {"epsilon": 1.0 if polygons else 0, **({} if threshold is None else {"score_threshold": threshold})}
    body = json.dumps({"instances": [{"b64": encoded}], "parameters": parameters}).encode()
    with urllib.request.urlopen(f"{url}/v1/models/{model}:predict", body) as response:
        (records,) = json.load(response)["predictions"]
    labels = sorted({record["label"] for record in records})
    function = load(url=url, model=model, labels=", ".join(labels))
    assert [label.name for label in function.spec.labels] == labels
    context = SimpleNamespace(frame_name=image_file, conf_threshold=threshold, conv_mask_to_poly=polygons)
    found = function.detect(context, image)
    for annotation in found:
        assert not hasattr(annotation, "source")
        assert annotation.frame == 0
        annotation.label = labels[annotation.label_id]
    return found, records, image


def check_rectangles(url: str) -> None:
    for threshold in (None, 0.95):
        found, records, _ = annotate(url, "detector", "scene.jpg", threshold)
        assert [shape.type.value for shape in found] == ["rectangle"] * len(records)
        for shape, record in zip(found, records, strict=True):
            assert shape.points == [record[name] for name in ("xmin", "ymin", "xmax", "ymax")]
    assert 0 < len(found) < 5


def check_rotated_rectangles(url: str) -> None:
    found, records, image = annotate(url, "oriented-detector", "oriented.jpg")
    assert found
    for shape, record in zip(found, records, strict=True):
        left, top, right, bottom = shape.points
        fractions = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top] / np.tile(image.size, 2)
        assert np.allclose(fractions, [record[name] for name in ("cx", "cy", "w", "h")], rtol=0, atol=1e-9)
        assert abs(np.exp(1j * np.radians(shape.rotation)) - np.exp(1j * record["r"])) < 1e-9
        assert 0 <= shape.rotation < 360


def check_masks(url: str) -> None:
    found, records, image = annotate(url, "segmenter", "scene.jpg")
    width, height = image.size
    for shape, record in zip(found, records, strict=True):
        rings = [np.array([[[point["x"], point["y"]]] for point in ring], np.int32) for ring in record["contour"]]
        mask = cv2.drawContours(cv2.fillPoly(np.zeros((height, width), np.uint8), rings, 1), rings, -1, 1, 1)
        assert np.array_equal(masks.decode_mask(shape.points, image_width=width, image_height=height), mask)


def check_polygons(url: str) -> None:
    found, records, _ = annotate(url, "segmenter", "scene.jpg", polygons=True)
    assert [shape.type.value for shape in found] == ["polygon"] * len(records)
    for shape, record in zip(found, records, strict=True):
        points = [[point["x"] + 0.5, point["y"] + 0.5] for point in record["contour"][0]]
        assert np.allclose(np.reshape(shape.points, (-1, 2)), points)


def check_tags(url: str) -> None:
    found, records, _ = annotate(url, "classifier", "shape.jpg")
    assert [tag.label for tag in found] == [records[0]["label"]]


def check_reason_of_the_server_is_shown(url: str) -> None:
    function = load(url=url, model="missing", labels="a")
    context = SimpleNamespace(frame_name="", conf_threshold=None, conv_mask_to_poly=False)
    error = raised_error(RuntimeError, function.detect, context, PIL.Image.new("L", (8, 8)))
    assert "HTTP 404: " in str(error)
    assert "missing" in str(error)


if __name__ == "__main__":
    run(globals(), sys.argv[1])
