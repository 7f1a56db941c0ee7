"""Test where images are placed in the input, and how boxes are mapped back."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.images.image_batch import ImageBatcher, Placement, fit
from app.core.runtimes.onnxruntime.images.preprocessing import BoxScale, Crop, Preprocessing, Resize
from tasks.inference.tensor import Datatype
from tasks.vision.image import Image

Sides = st.integers(1, 5000)


def place(
    image: tuple[int, int], size: tuple[int, int], resize: Resize, shorter_side: int, box_scale: BoxScale = "axes"
) -> Placement:
    """Return the placement of an image in an input of the same (height, width), resized with OpenCV."""
    options = Preprocessing(
        height=size[0], width=size[1], resize=resize, shorter_side=shorter_side, antialias=False, box_scale=box_scale
    )
    return fit(image, size, options)


@pytest.mark.parametrize(
    ("resize", "image", "side", "shorter_side", "expected"),
    [
        # height, width of the image; width, height, left, top after resizing, as in LetterBox of Ultralytics
        ("letterbox", (480, 640), 640, 640, (640, 480, 0, 80)),
        ("letterbox", (640, 480), 640, 640, (480, 640, 80, 0)),
        ("letterbox", (1281, 1919), 640, 640, (640, 427, 0, 106)),
        ("letterbox", (100, 100), 640, 640, (640, 640, 0, 0)),
        ("letterbox", (1, 3000), 640, 640, (640, 1, 0, 319)),
        ("pad", (480, 640), 640, 640, (640, 480, 0, 0)),
        ("pad", (1281, 1919), 640, 640, (640, 427, 0, 0)),
        ("stretch", (50, 200), 224, 256, (256, 256, -16, -16)),
        ("stretch", (50, 200), 224, 224, (224, 224, 0, 0)),
        ("crop", (480, 640), 224, 256, (341, 256, -58, -16)),
    ],
)
def test_image_is_resized_and_placed_as_in_the_library(
    resize: Resize, image: tuple[int, int], side: int, shorter_side: int, expected: tuple[int, ...]
) -> None:
    fitted = place(image, (side, side), resize, shorter_side)
    assert (fitted.width, fitted.height, fitted.left, fitted.top) == expected


@pytest.mark.parametrize(
    ("resize", "crop", "image", "expected"),
    [
        ("crop", "torchvision", (8, 11), (11, 8, -2)),
        ("crop", "mmlab", (8, 11), (11, 8, -2)),
        ("crop", "transformers", (8, 11), (11, 8, -1)),
        ("crop", "paddle", (8, 11), (11, 8, -1)),
        ("crop", "torchvision", (16, 27), (13, 8, -2)),
        ("crop", "paddle", (16, 27), (14, 8, -3)),
        ("pad", "torchvision", (21, 32), (8, 5, 0)),
        ("pad", "paddle", (22, 32), (8, 6, 0)),
        ("pad", "paddle", (10, 32), (8, 2, 0)),
        ("pad", "mmlab", (10, 32), (8, 3, 0)),
    ],
)
def test_sides_and_offsets_are_rounded_as_in_the_library(resize: Resize, crop: Crop, image: Any, expected: Any) -> None:
    options = Preprocessing(height=8, width=8, resize=resize, shorter_side=8, crop=crop)
    fitted = fit(image, (8, 8), options)
    assert (fitted.width, fitted.height, fitted.left) == expected


@pytest.mark.parametrize(
    ("resize", "box_scale", "scales"),
    [
        ("letterbox", "common", (192 / 1203, 192 / 1203)),
        ("pad", "common", (192 / 1203, 192 / 1203)),
        ("pad", "axes", (192 / 1203, 143 / 901)),
        ("stretch", "common", (192 / 1203, 192 / 901)),
    ],
)
def test_boxes_are_scaled_as_in_the_library(resize: Resize, box_scale: BoxScale, scales: tuple[float, float]) -> None:
    placement = place((901, 1203), (192, 192), resize, 192, box_scale)
    assert (placement.scale_x, placement.scale_y) == pytest.approx(scales)


@pytest.mark.parametrize("image", [(10, 100_000), (100_000, 10)])
def test_crop_of_thin_strip_needs_little_memory(image: tuple[int, int]) -> None:
    fitted = place(image, (224, 224), "crop", 224)
    assert fitted.width * fitted.height <= 4 * 224 * 224
    centre = np.array([[image[1] / 2, image[0] / 2] * 2], np.float32)
    inside = fitted.boxes_to_image(np.full((1, 4), 112, np.float32))
    assert inside == pytest.approx(centre, abs=0.05)


@given(Sides, Sides, Sides, Sides, st.sampled_from(("letterbox", "stretch", "crop")), st.data())
def test_boxes_map_to_input_and_back(
    image_height: int, image_width: int, height: int, width: int, resize: Resize, data: st.DataObject
) -> None:
    placement = place((image_height, image_width), (height, width), resize, min(height, width))
    xs = sorted(data.draw(st.floats(0, image_width, width=32)) for _ in range(2))
    ys = sorted(data.draw(st.floats(0, image_height, width=32)) for _ in range(2))
    box = np.array([[xs[0], ys[0], xs[1], ys[1]]], np.float64)
    scale, offset = [placement.scale_x, placement.scale_y] * 2, [placement.offset_x, placement.offset_y] * 2
    in_input = box * scale + offset
    in_image = placement.boxes_to_image(in_input.astype(np.float32))
    # float32 holds 24 bits of an input coordinate; mapping back divides the rounding error by the scale.
    tolerance = 1e-3 + np.abs(in_input).max() * 2**-22 / min(placement.scale_x, placement.scale_y)
    assert in_image == pytest.approx(box, abs=tolerance)


def placement_with_scales(scale_x: float, scale_y: float) -> Placement:
    placement = place((200, 1000), (200, 1000), "stretch", 200)
    return msgspec.structs.replace(placement, scale_x=scale_x, scale_y=scale_y, offset_x=10, offset_y=20)


@pytest.mark.parametrize("angle", [-0.7, 0.0, 0.3, math.pi / 2, 2.2])
def test_equal_scales_keep_angle(angle: float) -> None:
    boxes = np.array([[30, 40, 20, 6, angle]], np.float32)
    converted = placement_with_scales(0.5, 0.5).rotated_boxes_to_image(boxes)
    assert converted[0] == pytest.approx([40, 40, 40, 12, angle], abs=1e-4)


@given(st.floats(-1.5, 1.5), st.floats(0.1, 4), st.floats(0.1, 4), st.floats(1, 50), st.floats(1, 50))
def test_unequal_scales_keep_the_longer_axis_and_the_area(
    angle: float, scale_x: float, scale_y: float, width: float, height: float
) -> None:
    boxes = np.array([[0, 0, width, height, angle]], np.float32)
    (_, _, w, h, r) = placement_with_scales(scale_x, scale_y).rotated_boxes_to_image(boxes)[0].tolist()
    along_w = width * math.cos(angle) / scale_x, width * math.sin(angle) / scale_y
    along_h = -height * math.sin(angle) / scale_x, height * math.cos(angle) / scale_y
    assert w * h == pytest.approx(width * height / scale_x / scale_y, rel=1e-3)
    if math.hypot(*along_w) > math.hypot(*along_h) * 1.001:
        assert (w * math.cos(r), w * math.sin(r)) == pytest.approx(along_w, rel=1e-3, abs=1e-3)
    elif math.hypot(*along_h) > math.hypot(*along_w) * 1.001:
        assert (-h * math.sin(r), h * math.cos(r)) == pytest.approx(along_h, rel=1e-3, abs=1e-3)


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def noise(height: int, width: int, seed: int = 0) -> Image:
    return Image(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def normalised(pixels: NDArray[np.uint8], mean: tuple[float, ...], std: tuple[float, ...]) -> NDArray[np.float64]:
    return ((pixels / 255 - np.array(mean)) / np.array(std)).transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("datatype", "tolerance"), [(Datatype.FP32, 1e-6), (Datatype.FP16, 2e-3)], ids=["FP32", "FP16"]
)
@pytest.mark.parametrize("bgr", [False, True])
def test_normalisation_follows_formula(datatype: Datatype, tolerance: float, bgr: bool) -> None:
    options = Preprocessing(height=40, width=30, resize="stretch", shorter_side=30, mean=MEAN, std=STD, bgr=bgr)
    # The mirrored view is not contiguous.
    image = Image(noise(40, 30).pixels[:, ::-1])
    batch, _ = ImageBatcher(options, datatype).prepare([image], 1)
    assert batch.dtype == datatype.dtype
    assert np.abs(batch[0, :: -1 if bgr else 1] - normalised(image.pixels, MEAN, STD)).max() <= tolerance


def test_uint8_input_receives_unscaled_pixels() -> None:
    preprocessing = Preprocessing(height=8, width=8, resize="letterbox", shorter_side=8, scale=1, fill=7)
    image = noise(8, 4)
    batch, _ = ImageBatcher(preprocessing, Datatype.UINT8).prepare([image], 1)
    assert batch.dtype == np.uint8
    assert (batch[0, :, :, 2:6] == image.pixels.transpose(2, 0, 1)).all()
    assert (batch[0, :, :, [0, 1, 6, 7]] == 7).all()


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.FP16, Datatype.UINT8])
def test_channels_last_gives_same_values(datatype: Datatype) -> None:
    preprocessing = Preprocessing(height=10, width=12, resize="letterbox", shorter_side=10, bgr=True)
    images = [noise(8, 14), noise(30, 9, 1)]
    first, placements = ImageBatcher(preprocessing, datatype).prepare(images, 3)
    last, same = ImageBatcher(preprocessing, datatype, channels_last=True).prepare(images, 3)
    assert last.shape == (3, 10, 12, 3)
    assert (last == first.transpose(0, 2, 3, 1)).all()
    assert (last.flags.c_contiguous, same) == (True, placements)


def test_unused_batch_slots_are_zero() -> None:
    preprocessing = Preprocessing(height=8, width=8, resize="stretch", shorter_side=8)
    batch, placements = ImageBatcher(preprocessing, Datatype.FP32).prepare([noise(8, 8)], 3)
    assert batch.shape == (3, 3, 8, 8)
    assert len(placements) == 1
    assert batch[0].any()
    assert not batch[1:].any()
