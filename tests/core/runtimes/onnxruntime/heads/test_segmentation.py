"""Test masks with known pixels."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.image_segmentation import Segments
from tasks.vision.contours import mask_of_contours
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import segmentation_input, segmenter, uniform_image

NAMES = ("cat", "dog")
PROPERTIES = graphs.properties("segment", NAMES, (64, 64))
SHAPE = ("batch", 3, 64, 64)


def prototypes() -> NDArray[np.float32]:
    """Return two masks on a grid of 16x16 cells of 4 pixels: the left half, and all but a central square."""
    left = np.full((16, 16), -1, np.float32)
    left[:, :8] = 1
    holed = np.ones((16, 16), np.float32)
    holed[6:10, 6:10] = -1
    return np.stack([left, holed])[np.newaxis]


def write_model(folder: Path, layout: str, objects: list[list[float]]) -> Path:
    """Write a graph of objects: cx, cy, w, h in input pixels, score, class and two mask coefficients."""
    if layout == "raw":
        columns = [
            [*box[:4], *(box[4] if box[5] == number else 0.0 for number in range(2)), *box[6:]] for box in objects
        ]
        output = graphs.raw(columns)
    else:
        output = graphs.rows(
            [[cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2, *rest] for cx, cy, w, h, *rest in objects]
        )
    return graphs.constant(
        folder / "model.onnx", {"output0": output, "output1": prototypes()}, shape=SHAPE, properties=PROPERTIES
    )


def masks(found: Segments, width: int, height: int) -> list[NDArray[np.uint8]]:
    return [mask_of_contours(contours, width, height) for contours in found.contours]


@pytest.mark.parametrize("layout", ["raw", "nms"])
def test_masks_are_in_image_pixels(tmp_path: Path, layout: str) -> None:
    objects = [[32, 32, 64, 32, 0.9, 1, 1, 0], [32, 32, 32, 32, 0.8, 0, 0, 1], [32, 32, 64, 64, 0.3, 0, 1, 0]]
    model = segmenter(write_model(tmp_path, layout, objects))
    # A 64x64 letterbox scales a 256x128 image to a quarter, and pads it with 16 rows above and below.
    (found,) = model([segmentation_input(uniform_image(128, 256, 0))])
    assert found.labels == ["dog", "cat"]
    assert found.scores == pytest.approx([0.9, 0.8])
    left, holed = masks(found, 256, 128)
    expected = np.zeros((128, 256), np.uint8)
    expected[:, :128] = 1
    assert (left == expected).all()
    assert [len(contours) for contours in found.contours] == [1, 2]
    expected = np.zeros((128, 256), np.uint8)
    expected[:, 64:192] = 1
    # Interpolation between cells rounds the corners of the hole, and changes nothing else.
    expected[32:96, 96:160] = 0
    differing = holed != expected
    assert differing.sum() < 0.01 * expected.size
    assert not differing[:, :96].any()
    assert not differing[48:80, 112:144].any()


def test_masks_are_cropped_to_boxes(tmp_path: Path) -> None:
    model = segmenter(write_model(tmp_path, "nms", [[12, 32, 10, 6, 0.9, 0, 1, 0]]))
    (found,) = model([segmentation_input(uniform_image(64, 64, 0))])
    (mask,) = masks(found, 64, 64)
    expected = np.zeros((64, 64), np.uint8)
    expected[29:35, 7:17] = 1
    assert (mask == expected).all()


def test_masks_reach_border_of_letterboxed_image(tmp_path: Path) -> None:
    model = segmenter(write_model(tmp_path, "nms", [[32, 32, 64, 64, 0.9, 0, 1, 1]]))
    for width, height in ((130, 70), (70, 130), (640, 427), (63, 65)):
        (found,) = model([segmentation_input(uniform_image(height, width, 0))])
        (mask,) = masks(found, width, height)
        assert mask[:, 0].all()
        assert mask[0, : width // 4].all()
        assert mask[-1, : width // 4].all()


def test_masks_of_large_image_are_computed_in_tiles(tmp_path: Path) -> None:
    model = segmenter(write_model(tmp_path, "nms", [[32, 32, 64, 64, 0.9, 0, 1, 0]]))
    (found,) = model([segmentation_input(uniform_image(2500, 5000, 0))])
    (mask,) = masks(found, 5000, 2500)
    assert mask[:, :2490].all()
    assert not mask[:, 2510:].any()


def test_an_object_without_pixels_has_no_contours(tmp_path: Path) -> None:
    objects = [[32, 32, 20, 20, 0.9, 0, -1, -1], [10, 10, 0, 0, 0.8, 0, 1, 1], [-50, 10, 20, 20, 0.7, 0, 1, 1]]
    (found,) = segmenter(write_model(tmp_path, "nms", objects))([segmentation_input(uniform_image(64, 64, 0))])
    assert [len(contours) for contours in found.contours] == [1, 0, 0]
    # The first mask is negative everywhere but in the hole of its second prototype, where both cancel out or add up.
    (hole, *_) = masks(found, 64, 64)
    assert not hole[:, :24].any()
