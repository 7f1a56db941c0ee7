"""Images of a request: raw pixels, and limits that are checked before images are decoded."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype, InputTensor, Tensor
from tasks.vision.image import Image, images_from_tensor
from tasks.vision.request import PixelBudget, read_images
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import file_input, pixel_input
from tests.support.rejection import rejects


def tensor(data: NDArray[Any]) -> Tensor:
    datatype = next(candidate for candidate in Datatype if candidate.dtype == data.dtype)
    return Tensor(name="image", datatype=datatype, data=data)


def ramp(*shape: int) -> NDArray[np.uint8]:
    return (np.arange(np.prod(shape)) % 251).astype(np.uint8).reshape(shape)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 1), (4, 5, 3), (4, 5, 4), (3, 4, 5, 3)], ids=str)
def test_shapes_are_grey_rgb_rgba_or_several_images(shape: tuple[int, ...]) -> None:
    data = ramp(*shape)
    expected = np.repeat(data.reshape(1, 4, 5, 1), 3, axis=3) if data.size == 20 else data.reshape(-1, 4, 5, shape[-1])
    images = images_from_tensor(tensor(data))
    assert np.array_equal([image.pixels for image in images], expected[..., :3])
    assert all(image.pixels.flags.c_contiguous for image in images)


@pytest.mark.parametrize("shape", [(), (5,), (4, 5, 2), (4, 5, 5), (4, 5, 0), (1, 1, 4, 5, 3), (2, 4, 5, 2)], ids=str)
def test_other_shapes_are_rejected(shape: tuple[int, ...]) -> None:
    with rejects("raw pixels of shape", "shape"):
        images_from_tensor(tensor(np.zeros(shape, np.uint8)))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int16, np.int32, np.int64, np.uint32, np.uint64], ids=lambda dtype: dtype.__name__
)
def test_other_integers_must_be_within_0_and_255(dtype: type[np.integer[Any]]) -> None:
    (image,) = images_from_tensor(tensor(np.array([[0, 1, 127]], dtype)))
    assert image.pixels[0, :, 0].tolist() == [0, 1, 127]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for wrong in [number for number in (-1, 256) if low <= number <= high]:
        with rejects(rf"within 0\.\.255, got {min(wrong, 0)}\.\.{max(wrong, 0)}", "data"):
            images_from_tensor(tensor(np.array([[0, wrong]], dtype)))


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [(np.array([[0, 255, 256, 65535]], np.uint16), [0, 0, 1, 255]), (np.array([[True, False]]), [255, 0])],
)
def test_pixels_of_16_bits_and_booleans_are_scaled(pixels: NDArray[Any], expected: list[int]) -> None:
    (image,) = images_from_tensor(tensor(pixels))
    assert image.pixels[0, :, 0].tolist() == expected


def test_bf16_pixels_are_rejected() -> None:
    with pytest.raises(InferenceError, match="Expected raw pixels as UINT8, FP16 or FP32, got BF16"):
        images_from_tensor(Tensor(name="a", datatype=Datatype.BF16, data=np.zeros((4, 4, 3), np.uint16)))


@given(st.sampled_from([np.float32, np.float64]), st.lists(st.integers(0, 255), min_size=1, max_size=20))
def test_fractions_are_rounded_to_the_nearest_of_256_levels(dtype: Any, levels: list[int]) -> None:
    pixels = (np.array([levels], np.float64) / 255).astype(dtype)
    (image,) = images_from_tensor(tensor(pixels))
    assert image.pixels[0, :, 0].tolist() == levels


@pytest.mark.parametrize("value", [1.001, -0.001, 255.0, float("nan"), float("inf")])
def test_fractions_out_of_range_are_rejected(value: float) -> None:
    with pytest.raises(InferenceError, match="pixels as UINT8"):
        images_from_tensor(tensor(np.array([[0.5, value]], np.float32)))


def pixels(*shape: int) -> Tensor:
    return pixel_input(np.zeros(shape, np.uint8))


def read(tensor: InputTensor, **limits: Any) -> list[Image]:
    """Read one input."""
    return read_images(tensor, PixelBudget(Limits(**limits)), "inputs[0]")


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
def test_image_above_max_pixels_is_rejected(file_format: str) -> None:
    tensor = file_input(encode_image(rectangle(40, 24), file_format))
    assert read(tensor, max_pixels=40 * 24)[0].width == 40
    with rejects("40x24 = 960", "inputs[0].data[0]", ErrorKind.TOO_LARGE):
        read(tensor, max_pixels=40 * 24 - 1)


def test_max_pixels_applies_to_each_raw_image() -> None:
    assert len(read(pixels(3, 4, 5, 3), max_pixels=20)) == 3
    with rejects("5x4 = 20", "inputs[0]", ErrorKind.TOO_LARGE):
        read(pixels(1, 4, 5, 3), max_pixels=19)


def test_images_of_a_request_share_a_pixel_budget() -> None:
    image = encode_image(rectangle(40, 24))
    assert len(read(file_input(image, image), max_request_pixels=2 * 960)) == 2
    with rejects("at most 1,919 pixels in one request", "inputs[0].data[1]", ErrorKind.TOO_LARGE):
        read(file_input(image, image), max_request_pixels=2 * 960 - 1)
    budget = PixelBudget(Limits(max_request_pixels=60))
    read_images(pixels(2, 4, 5, 3), budget, "inputs[0]")
    with pytest.raises(InferenceError, match="in one request"):
        read_images(pixels(2, 4, 5, 3), budget, "inputs[1]")


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, 0), (0, 0)])
def test_an_image_without_pixels_is_rejected(width: int, height: int) -> None:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    with pytest.raises(InferenceError, match=f"at least 1x1 pixels, got {width}x{height}"):
        read(file_input(header))


@pytest.mark.parametrize("shape", [(0, 4, 4, 3), (0, 4, 3), (4, 0)])
def test_empty_raw_pixels_are_rejected(shape: tuple[int, ...]) -> None:
    with rejects("at least"):
        read(pixels(*shape))
