"""Images that come as raw pixels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.inference.error import InferenceError
from tasks.inference.tensor import Datatype, Tensor
from tasks.vision.image import images_from_tensor


def tensor(data: NDArray[Any]) -> Tensor:
    datatype = next(candidate for candidate in Datatype if candidate.dtype == data.dtype)
    return Tensor(name="image", datatype=datatype, data=data)


def ramp(*shape: int) -> NDArray[np.uint8]:
    return (np.arange(np.prod(shape)) % 251).astype(np.uint8).reshape(shape)


def test_two_dimensions_are_a_grey_image() -> None:
    (image,) = images_from_tensor(tensor(ramp(4, 5)))
    assert image.pixels.shape == (4, 5, 3)
    assert all(np.array_equal(image.pixels[:, :, channel], ramp(4, 5)) for channel in range(3))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_are_grey_rgb_or_rgba(channels: int) -> None:
    pixels = ramp(4, 5, channels)
    (image,) = images_from_tensor(tensor(pixels))
    assert np.array_equal(image.pixels, np.broadcast_to(pixels, (4, 5, 3)) if channels == 1 else pixels[:, :, :3])
    assert image.pixels.flags.c_contiguous


def test_several_images_stay_in_order() -> None:
    batch = ramp(3, 4, 5, 3)
    images = images_from_tensor(tensor(batch))
    assert len(images) == 3
    assert all(np.array_equal(image.pixels, pixels) for image, pixels in zip(images, batch, strict=True))


@pytest.mark.parametrize("shape", [(), (5,), (4, 5, 2), (4, 5, 5), (4, 5, 0), (1, 1, 4, 5, 3), (2, 4, 5, 2)], ids=str)
def test_other_shapes_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(InferenceError, match="raw pixels of shape") as caught:
        images_from_tensor(tensor(np.zeros(shape, np.uint8)))
    assert caught.value.path == "shape"


@pytest.mark.parametrize(
    "dtype", [np.int16, np.int32, np.int64, np.uint32, np.uint64], ids=lambda dtype: dtype.__name__
)
def test_wide_integers_must_be_within_0_and_255(dtype: type[np.integer[Any]]) -> None:
    pixels = np.array([[0, 1, 128, 255]], dtype)
    (image,) = images_from_tensor(tensor(pixels))
    assert image.pixels[0, :, 0].tolist() == [0, 1, 128, 255]
    with pytest.raises(InferenceError, match=r"within 0\.\.255, got 0\.\.256") as caught:
        images_from_tensor(tensor(np.array([[0, 256]], dtype)))
    assert caught.value.path == "data"


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64], ids=lambda dtype: dtype.__name__)
def test_negative_pixels_are_rejected(dtype: type[np.integer[Any]]) -> None:
    with pytest.raises(InferenceError, match=r"got -1\.\.0"):
        images_from_tensor(tensor(np.array([[0, -1]], dtype)))


def test_bf16_pixels_are_rejected() -> None:
    with pytest.raises(InferenceError, match="Expected raw pixels as UINT8, FP16 or FP32, got BF16"):
        images_from_tensor(Tensor(name="a", datatype=Datatype.BF16, data=np.zeros((4, 4, 3), np.uint16)))


def test_16_bit_pixels_keep_the_upper_8_bits() -> None:
    (image,) = images_from_tensor(tensor(np.array([[0, 255, 256, 65535]], np.uint16)))
    assert image.pixels[0, :, 0].tolist() == [0, 0, 1, 255]


def test_booleans_are_black_and_white() -> None:
    (image,) = images_from_tensor(tensor(np.array([[True, False]])))
    assert image.pixels[0, :, 0].tolist() == [255, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda dtype: dtype.__name__)
@given(st.data())
def test_fractions_are_rounded_to_the_nearest_of_256_levels(dtype: Any, data: st.DataObject) -> None:
    levels = data.draw(st.lists(st.integers(0, 255), min_size=1, max_size=20))
    pixels = (np.array([levels], np.float64) / 255).astype(dtype)
    (image,) = images_from_tensor(tensor(pixels))
    assert image.pixels[0, :, 0].tolist() == levels


@pytest.mark.parametrize("value", [1.001, -0.001, 255.0, float("nan"), float("inf")])
def test_fractions_out_of_range_are_rejected(value: float) -> None:
    with pytest.raises(InferenceError, match="pixels as UINT8"):
        images_from_tensor(tensor(np.array([[0.5, value]], np.float32)))
