"""Compare the model's input with the pipelines of the libraries that models were trained with.

The references are the documented steps of each library with the same image functions. Those of transformers run the
library itself.
"""

import importlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as Pillow

from app.core.runtimes.onnxruntime.images.image_batch import ImageBatcher, resize_floats
from app.core.runtimes.onnxruntime.images.preprocessing import Preprocessing
from tasks.inference.tensor import Datatype
from tasks.vision.image import Image
from tests.core.runtimes.onnxruntime import answers, graphs
from tests.support.data.rounding import assert_equal_but_for_rounding

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
SIZES = [(300, 451), (451, 300), (223, 225), (64, 64), (33, 50), (100, 1001), (1001, 100)]
PHOTO = Path(__file__).parents[5] / "fixtures" / "images" / "photo.jpg"


def photo(height: int, width: int) -> NDArray[np.uint8]:
    pixels = np.asarray(Pillow.open(PHOTO).convert("RGB"))
    return np.ascontiguousarray(np.tile(pixels, (5, 5, 1))[7 : 7 + height, 5 : 5 + width])


def torchvision_resize(image: Pillow.Image, side: int, resample: int) -> Pillow.Image:
    """Return `Resize(side)`: the shorter side gets that length, the other is truncated."""
    width, height = image.size
    short, long = sorted(image.size)
    other = int(side * long / short)
    return image.resize((side, other) if width <= height else (other, side), resample)


def torchvision_centre_crop(image: Pillow.Image, side: int) -> NDArray[np.uint8]:
    """Return `CenterCrop(side)` for an image that is large enough."""
    width, height = image.size
    top, left = round((height - side) / 2.0), round((width - side) / 2.0)
    return np.asarray(image.crop((left, top, left + side, top + side)))


def prepared(preprocessing: Preprocessing, pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    batch, _ = ImageBatcher(preprocessing, Datatype.FP32).prepare([Image(pixels)], 1)
    return batch[0].astype(np.float64)


@pytest.mark.parametrize(
    ("interpolation", "flag"),
    [
        ("nearest", cv2.INTER_NEAREST), ("bilinear", cv2.INTER_LINEAR), ("bicubic", cv2.INTER_CUBIC),
        ("lanczos", cv2.INTER_LANCZOS4), ("area", cv2.INTER_AREA),
    ],
)  # fmt: skip
@pytest.mark.verifies("inputs as OpenCV's and Pillow's", "image-tensors")
def test_resize_without_antialiasing_equals_opencv(interpolation: Any, flag: int) -> None:
    pixels = photo(300, 451)
    preprocessing = Preprocessing(
        height=48, width=64, resize="stretch", shorter_side=48, interpolation=interpolation, antialias=False, scale=1
    )
    reference = cv2.resize(pixels, (64, 48), interpolation=flag)
    assert (prepared(preprocessing, pixels) == reference.transpose(2, 0, 1)).all()


def classifier_preprocessing(folder: Path, **metadata: str) -> Preprocessing:
    """Return what is inferred for a classifier of 56x56 pixels from its metadata and the files beside it."""
    file = graphs.channel_means(folder / "model.onnx", shape=("batch", 3, 56, 56), properties=metadata)
    return answers.inspected(graphs.source(file, labels=["0", "1", "2"])).graph.preprocessing


@pytest.mark.parametrize("size", SIZES[:5])
@pytest.mark.verifies("inputs as timm's transforms", "timm")
def test_timm_config_gives_input_of_timm(tmp_path: Path, size: tuple[int, int]) -> None:
    config = {"input_size": [3, 56, 56], "interpolation": "bicubic", "crop_pct": 0.9}
    config |= {"mean": MEAN.tolist(), "std": STD.tolist()}
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": config}))
    pixels = photo(*size)
    resized = torchvision_resize(Pillow.fromarray(pixels), math.floor(56 / 0.9), Pillow.Resampling.BICUBIC)
    expected = ((torchvision_centre_crop(resized, 56) / 255 - MEAN) / STD).transpose(2, 0, 1)
    found = prepared(classifier_preprocessing(tmp_path), pixels)
    assert_equal_but_for_rounding(found, expected, step=1 / 255 / STD[:, None, None])


def processors(transformers: Any) -> dict[str, Callable[[], Any]]:
    square = {"height": 56, "width": 56}
    return {
        "vit": lambda: transformers.ViTImageProcessorPil(size=square, resample=2),
        "clip": lambda: transformers.CLIPImageProcessorPil(size={"shortest_edge": 61}, crop_size=square),
        "convnext": lambda: transformers.ConvNextImageProcessorPil(
            size={"shortest_edge": 56}, crop_pct=0.875, resample=3
        ),
        "siglip": lambda: transformers.SiglipImageProcessorPil(size=square),
        "nearest": lambda: transformers.ViTImageProcessorPil(size=square, resample=0),
        "lanczos": lambda: transformers.ViTImageProcessorPil(size=square, resample=1),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vit", "clip", "convnext", "siglip", "nearest", "lanczos"])
@pytest.mark.verifies("inputs as transformers' processors", "classifiers")
def test_processor_file_gives_input_of_transformers(tmp_path: Path, kind: str) -> None:
    processor = processors(importlib.import_module("transformers"))[kind]()
    processor.save_pretrained(tmp_path)
    preprocessing = classifier_preprocessing(tmp_path)
    for size in SIZES:
        expected = processor(Pillow.fromarray(photo(*size)), return_tensors="np")["pixel_values"][0]
        found = prepared(preprocessing, photo(*size))
        assert_equal_but_for_rounding(found, expected, step=1 / 255 / np.array(preprocessing.std)[:, None, None])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Detr", "Yolos"])
@pytest.mark.parametrize("size", [*SIZES[:5], (480, 640), (333, 777)])
@pytest.mark.verifies("inputs as transformers' processors", "detr")
def test_detr_processor_file_gives_input_of_transformers(tmp_path: Path, size: tuple[int, int], kind: str) -> None:
    make: Any = getattr(importlib.import_module("transformers"), f"{kind}ImageProcessorPil")
    processor = make(size={"shortest_edge": 80, "longest_edge": 133}, do_pad=False)
    processor.save_pretrained(tmp_path)
    outputs = {"logits": np.zeros((1, 5, 4), np.float32), "pred_boxes": np.zeros((1, 5, 4), np.float32)}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, "height", "width"))
    found = answers.inspected(graphs.source(file, layout="detr")).graph.preprocessing
    pixels = photo(*size)
    expected = processor(Pillow.fromarray(pixels), return_tensors="np")["pixel_values"][0]
    assert found.dynamic_size is not None
    frame = found.dynamic_size.input_size(*size)
    assert frame == expected.shape[1:]
    batch, _ = ImageBatcher(found, Datatype.FP32).prepare([Image(pixels)], 1, frame)
    assert_equal_but_for_rounding(batch[0], expected, step=1 / 255 / STD[:, None, None])


def paddle_text_line(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.float64]:
    """Return `resize_norm_img` of PaddleOCR's text classifier."""
    ratio = pixels.shape[1] / float(pixels.shape[0])
    resized_width = width if math.ceil(height * ratio) > width else math.ceil(height * ratio)
    resized = cv2.resize(pixels[:, :, ::-1], (resized_width, height))
    padded = np.zeros((3, height, width))
    padded[:, :, :resized_width] = (resized.transpose(2, 0, 1) / 255 - 0.5) / 0.5
    return padded


@pytest.mark.parametrize("size", [(24, 60), (24, 96), (24, 97), (24, 400), (24, 1000), (90, 30), (48, 192)])
def test_documented_settings_of_text_classifier_equal_paddleocr(tmp_path: Path, size: tuple[int, int]) -> None:
    page = (Path(__file__).parents[5] / "docs" / "models.md").read_text()
    (settings,) = (json.loads(line) for line in page.splitlines() if line.startswith('{"labels": ["0", "180"]'))
    scores = np.array([[0.3, 0.7]], np.float32)
    file = graphs.constant(tmp_path / "model.onnx", {"softmax_0.tmp_0": scores}, shape=("batch", 3, "h", "w"), name="x")
    found = answers.inspected(graphs.source(file, **settings))
    assert found.description.labels == ("0", "180")
    pixels = photo(*size)
    assert np.abs(prepared(found.graph.preprocessing, pixels) - paddle_text_line(pixels, 48, 192)).max() < 1e-6


@pytest.mark.parametrize("size", [(24, 60), (24, 160), (24, 161), (31, 777), (90, 30)])
@pytest.mark.verifies("inputs as PaddleOCR's steps", "ctc")
def test_text_recogniser_input_equals_paddleocr(tmp_path: Path, size: tuple[int, int]) -> None:
    steps = {"output": np.zeros((1, 4, 4), np.float32)}
    shape, metadata = ("batch", 3, 48, "w"), {"character": "a\nb"}
    file = graphs.constant(tmp_path / "model.onnx", steps, shape=shape, properties=metadata, name="x")
    found, pixels = answers.inspected(graphs.source(file)).graph.preprocessing, photo(*size)
    width = int(48 * max(320 / 48, size[1] / size[0]))
    assert found.dynamic_size is not None
    assert found.dynamic_size.input_size(*size) == (48, width)
    batch, _ = ImageBatcher(found, Datatype.FP32).prepare([Image(pixels)], 1, (48, width))
    assert np.abs(batch[0] - paddle_text_line(pixels, 48, width)).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metadata", "antialias"),
    [
        ({}, False),
        ({"rfdetr_inference": '{"resize_interpolation": "bilinear", "resize_antialias": false}'}, False),
        ({"interpolation": "bilinear", "antialias": "True"}, True),
    ],
)
@pytest.mark.verifies("inputs as torchvision's resize", "rf-detr")
def test_rf_detr_input_equals_torchvision_resize_of_floats(
    tmp_path: Path, metadata: dict[str, str], antialias: bool
) -> None:
    torch: Any = importlib.import_module("torch")
    outputs = {"dets": np.zeros((1, 5, 4), np.float32), "labels": np.zeros((1, 5, 3), np.float32)}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, 56, 56), properties=metadata)
    found, pixels = answers.inspected(graphs.source(file)).graph.preprocessing, photo(300, 451)
    floats = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
    resized = torch.nn.functional.interpolate(floats, (56, 56), mode="bilinear", antialias=antialias)[0].numpy()
    levels = np.abs(prepared(found, pixels) * STD[:, None, None] + MEAN[:, None, None] - resized) * 255
    # torchvision does not round the resized pixels.
    assert levels.max() < 1.01
    assert levels.mean() < 0.3


@pytest.mark.parametrize("size", SIZES)
def test_resized_floats_are_not_rounded(size: tuple[int, int]) -> None:
    pixels = photo(*size)
    expected = cv2.resize(pixels.astype(np.float32), (72, 64), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_allclose(resize_floats(pixels, (64, 72), (0, 0, 72, 64)), expected, atol=1e-3)
    part = resize_floats(pixels, (64, 72), (3, 5, 60, 50))
    np.testing.assert_allclose(part, expected[5:50, 3:60], atol=1e-3)
