"""Test graphs whose image has one channel, in every layout and for TENSOR."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from app.core.runtimes.onnxruntime.images.image_batch import ImageBatcher
from app.core.runtimes.onnxruntime.images.preprocessing import Preprocessing
from app.core.runtimes.onnxruntime.loading import load
from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tasks.inference.tensor import Datatype
from tasks.vision.image import Image
from tests.core.runtimes.onnxruntime import graphs
from tests.support.data.images import encode_image
from tests.support.data.requests import file_input, pixel_input, predict

PIXELS = np.random.default_rng(3).integers(0, 256, (24, 36, 3), np.uint8)
LUMA = (PIXELS @ np.array([0.299, 0.587, 0.114])).astype(np.float32)
FILTERS = {"bilinear": PIL.Image.Resampling.BILINEAR, "bicubic": PIL.Image.Resampling.BICUBIC}


def identity(folder: Path, *, shape: tuple[Any, ...], datatype: int = TensorProto.FLOAT, **settings: object) -> Any:
    """Write a graph that returns its input."""
    options: dict[str, Any] = {"shape": shape, "datatype": datatype}
    node = helper.make_node("Identity", ["images"], ["pixels"])
    file = graphs.write(folder / "model.onnx", [node], {"pixels": shape}, output_types={"pixels": datatype}, **options)
    return graphs.source(file, task_type="TENSOR", **settings)


def answered_pixels(source: Any) -> NDArray[Any]:
    (prediction,) = predict(load(source), file_input(encode_image(PIXELS)))
    return prediction.tensors[0].data


@pytest.mark.parametrize(("filter_name", "channels_last"), [("bilinear", False), ("bicubic", True)])
def test_luma_is_resized_as_floats_by_pillow(tmp_path: Path, filter_name: str, channels_last: bool) -> None:
    shape = ("batch", 8, 10, 1) if channels_last else ("batch", 1, 8, 10)
    preprocessing = {"interpolation": filter_name, "antialias": True, "mean": 0.5, "std": 0.25}
    pixels = answered_pixels(identity(tmp_path, shape=shape, preprocessing=preprocessing))
    resized = np.asarray(PIL.Image.fromarray(LUMA).resize((10, 8), FILTERS[filter_name])).clip(0, 255)
    assert pixels.shape == shape[1:]
    assert np.allclose(pixels.reshape(8, 10), (resized / 255 - 0.5) / 0.25, atol=1e-5)


def test_bytes_are_rounded_luma(tmp_path: Path) -> None:
    source = identity(tmp_path, shape=(1, 1, 24, 36), datatype=TensorProto.UINT8, preprocessing={"resize": "stretch"})
    pixels = answered_pixels(source)
    assert pixels.dtype == np.uint8
    assert np.abs(pixels[0] - LUMA).max() <= 0.5001


def test_bytes_beyond_white_and_black_are_clipped(tmp_path: Path) -> None:
    edge = np.zeros((16, 16, 3), np.uint8)
    edge[:, 8:] = 255
    options = Preprocessing(height=32, width=32, resize="stretch", shorter_side=32, interpolation="bicubic")
    (pixels,), _ = ImageBatcher(options, Datatype.UINT8, grey=True).prepare([Image(edge)], 1)
    assert np.all(np.diff(pixels[0, 16].astype(int)) >= 0)
    assert (pixels.min(), pixels.max()) == (0, 255)


def test_padding_has_one_channel(tmp_path: Path) -> None:
    preprocessing = {"resize": "letterbox", "fill": 51, "antialias": False, "scale": 1}
    pixels = answered_pixels(identity(tmp_path, shape=(1, 1, 36, 36), preprocessing=preprocessing))
    assert np.all(pixels[0, :6] == 51)
    assert np.allclose(pixels[0, 6:30], LUMA, atol=1e-3)


def test_classifier_of_grey_images_needs_no_settings(tmp_path: Path) -> None:
    base, gain = np.array([[2, 0]], np.float32), np.array([[-4, 0]], np.float32)
    file = graphs.affine(tmp_path / "model.onnx", {"logits": (base, gain)}, shape=("batch", 1, 8, 8))
    source = graphs.source(file, labels=("dark", "light"))
    facts = {fact.topic: fact for fact in load(source).description.facts}
    assert facts["channels"] == Fact("channels", "one, grey: 0.299 R + 0.587 G + 0.114 B", Origin.SHAPES)
    # ImageNet's mean and deviation are those of colours.
    assert (facts["mean"].value, facts["std"].value) == ("0", "1")
    assert "channel order" not in facts
    for value, label in ((0, "dark"), (255, "light")):
        (prediction,) = predict(load(source), pixel_input(np.full((9, 9, 3), value, np.uint8)))
        assert prediction.records()[0].label == label


@pytest.mark.parametrize(
    ("preprocessing", "reason"),
    [
        ({"mean": [0.485, 0.456, 0.406]}, r'one channel, but mean is 0.485, 0.456, 0.406.*"mean": 0.485'),
        ({"std": [1, 1, 2]}, r'one channel, but std is 1, 1, 2.*"std": 1'),
        ({"channel_order": "BGR"}, "cannot declare channel_order"),
    ],
)
def test_settings_for_three_channels_are_rejected(
    tmp_path: Path, preprocessing: dict[str, object], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        load(identity(tmp_path, shape=(1, 1, 8, 8), preprocessing=preprocessing))


@pytest.mark.parametrize("std", [0, -1, [1, 1]])
def test_standard_deviation_is_one_number_or_three_above_0(tmp_path: Path, std: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"std|> 0.0"):
        identity(tmp_path, shape=(1, 1, 8, 8), preprocessing={"std": std})


def test_one_mean_is_that_of_all_channels(tmp_path: Path) -> None:
    preprocessing = {"resize": "stretch", "mean": 0.5, "std": 0.25}
    pixels = answered_pixels(identity(tmp_path, shape=(1, 3, 24, 36), preprocessing=preprocessing))
    assert np.allclose(pixels, (PIXELS.transpose(2, 0, 1) / 255 - 0.5) / 0.25, atol=1e-5)
