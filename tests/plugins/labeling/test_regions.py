"""Shapes that the fixture models do not have: masks with holes and parts."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from app.plugins.labeling.plan import Plan, parse_label_config
from app.plugins.labeling.regions import task_result
from tasks.image_segmentation import Segments
from tasks.inference.response import Record
from tasks.vision.contours import contours_of_mask, mask_of_contours

GENERATOR = np.random.default_rng(7)
BLOBS = (cv2.GaussianBlur(GENERATOR.random((240, 320)), (0, 0), 4) > 0.5).astype(np.uint8)
"""A mask with many parts, most with holes."""
FRAME = np.zeros((30, 40), np.uint8)
FRAME[4:20, 5:25] = 1
FRAME[8:16, 10:20] = 0
FRAME[22:28, 30:38] = 1
"""A rectangle with a hole, and another part."""


def regions(tags: str, records: Sequence[Record], width: int, height: int) -> list[Any]:
    config = parse_label_config(f'<View><Image name="image" value="$image"/>{tags}</View>', "")
    controls = [(control, {"red": "red"}) for control in config.controls]
    plan = Plan(model_name="m", controls=controls, keys=["image"], parameters={}, version="m:1-0")
    result: Any = task_result(plan, records, width, height)["result"]
    return result


def segments(mask: NDArray[np.uint8]) -> Sequence[Record]:
    scores = np.array([0.5], np.float32)
    return Segments(labels=["red"], scores=scores, contours=[contours_of_mask(mask)]).records()


def decode_brush(data: list[int]) -> NDArray[np.uint8]:
    """Decode a bit stream as the brush of Label Studio does: a header, and runs of equal or different values."""
    bits = "".join(f"{byte:08b}" for byte in data)
    position = 0

    def read(count: int) -> int:
        nonlocal position
        position += count
        return int(bits[position - count : position], 2)

    count, word = read(32), read(5) + 1
    sizes = [read(4) + 1 for _ in range(4)]
    values: list[int] = []
    while len(values) < count:
        is_run = read(1)
        length = read(sizes[read(2)]) + 1
        values += [read(word)] * length if is_run else [read(word) for _ in range(length)]
    return np.array(values, np.uint8)


@pytest.mark.parametrize(
    "mask",
    [BLOBS, FRAME, np.ones((300, 300), np.uint8), np.ones((1, 1), np.uint8), np.eye(9, dtype=np.uint8)],
    ids=["blobs", "frame", "more than the longest run", "one pixel", "diagonal"],
)
def test_brush_has_the_pixels_of_the_mask(mask: NDArray[np.uint8]) -> None:
    height, width = mask.shape
    (region,) = regions('<BrushLabels name="b" toName="image"/>', segments(mask), width, height)
    pixels = decode_brush(region["value"]["rle"]).reshape(height, width, 4)
    # The points of contours restore this mask.
    expected = mask_of_contours(contours_of_mask(mask), width, height)
    assert np.array_equal(pixels, np.repeat(expected[:, :, np.newaxis] * 255, 4, axis=2))


def test_each_part_is_a_polygon_without_its_holes() -> None:
    found = regions('<PolygonLabels name="p" toName="image"/>', segments(FRAME), 40, 30)
    points = [np.array(region["value"]["points"]) / 100 * (40, 30) for region in found]
    bounds = sorted((ring.min(axis=0).tolist(), ring.max(axis=0).tolist()) for ring in points)
    # From centre to centre of the pixels at the border.
    assert np.allclose(bounds, [[[5.5, 4.5], [24.5, 19.5]], [[30.5, 22.5], [37.5, 27.5]]])
    assert all(region["value"]["closed"] for region in found)
