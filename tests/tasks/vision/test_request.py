"""Limits on the images of a request, checked before they are decoded."""

import struct
from typing import Any

import numpy as np
import pytest

from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype, InputTensor, Tensor
from tasks.vision.image import Image
from tasks.vision.request import PixelBudget, read_images
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import file_input
from tests.support.rejection import rejects


def pixels(*shape: int) -> Tensor:
    """Return an input of raw black pixels."""
    return Tensor(name="a", datatype=Datatype.UINT8, data=np.zeros(shape, np.uint8))


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
