"""Test masks with one channel: U-Net, ISNet, matting and MediaPipe's segmenters."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine.models.model_metadata import Fact, Origin
from tasks.vision.contours import mask_of_contours
from tests.app.runtimes.onnxruntime import graphs
from tests.app.runtimes.onnxruntime.answers import inspected, segmentation_input, segmenter, uniform_image

SEGMENT: dict[str, Any] = {"task_type": "IMAGE_SEGMENTATION"}


def soft_mask(side: int = 16) -> NDArray[np.float32]:
    """Return a smooth blob in 0..1."""
    rows, columns = np.mgrid[:side, :side]
    return np.exp(-((rows - 6) ** 2 + (columns - 9) ** 2) / 20).astype(np.float32)


def write(folder: Path, values: NDArray[np.float32], name: str = "output", **more: NDArray[np.float32]) -> Path:
    outputs = {name: values[np.newaxis, np.newaxis], **{key: array[np.newaxis] for key, array in more.items()}}
    return graphs.constant(folder / "model.onnx", outputs, shape=("batch", 3, 16, 16))


def found_mask(file: Path, height: int, width: int, **settings: Any) -> NDArray[np.uint8]:
    (found,) = segmenter(file, **SEGMENT, **settings)([segmentation_input(uniform_image(height, width, 0))])
    assert found.labels == ["foreground"]
    return mask_of_contours(found.contours[0], width, height)


def reference_mask(height: int, width: int) -> NDArray[np.bool_]:
    """Return the usual post-processing: enlarge the mask to the image, and compare it with 0.5."""
    return np.asarray(cv2.resize(soft_mask(), (width, height), interpolation=cv2.INTER_LINEAR) > 0.5)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (64, 48), (333, 500)])
def test_mask_equals_enlarged_and_thresholded_output(tmp_path: Path, height: int, width: int) -> None:
    file = write(tmp_path, soft_mask())
    assert (found_mask(file, height, width) == reference_mask(height, width)).mean() > 0.999


def test_score_is_mean_probability_of_foreground(tmp_path: Path) -> None:
    values = soft_mask()
    file = write(tmp_path, values)
    (found,) = segmenter(file, **SEGMENT)([segmentation_input(uniform_image(16, 16, 0))])
    assert found.scores == pytest.approx([values[values > 0.5].mean()])
    (nothing,) = segmenter(file, **SEGMENT)([segmentation_input(uniform_image(16, 16, 0), score_threshold=0.99)])
    assert (nothing.labels, len(nothing.scores)) == ([], 0)


@pytest.mark.parametrize(("name", "settings"), [("logits", {}), ("output", {"layout": "mask-logits"}), ("output", {})])
def test_logits_are_compared_with_zero(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    logits = np.where(soft_mask() > 0.5, 3, -3).astype(np.float32)
    mask = found_mask(write(tmp_path, logits, name), 16, 16, **settings)
    assert (mask == (logits > 0)).all()


def test_tiny_logits_over_zero_are_foreground(tmp_path: Path) -> None:
    file = write(tmp_path, np.full((16, 16), 1e-9, np.float32), "logits")
    assert found_mask(file, 16, 16).all()


def test_further_masks_of_u2net_are_left_out(tmp_path: Path) -> None:
    file = write(tmp_path, soft_mask(), "d0", d1=np.ones((1, 16, 16), np.float32), d2=np.ones((1, 16, 16), np.float32))
    assert (found_mask(file, 16, 16) == reference_mask(16, 16)).all()


def test_empty_mask_finds_nothing(tmp_path: Path) -> None:
    (found,) = segmenter(write(tmp_path, np.zeros((16, 16), np.float32)), **SEGMENT)(
        [segmentation_input(uniform_image(20, 20, 0), score_threshold=0)]
    )
    assert (found.labels, len(found.contours)) == ([], 0)


def test_mask_in_the_padding_of_a_letterbox_finds_nothing(tmp_path: Path) -> None:
    mask = np.zeros((16, 16), np.float32)
    mask[-2:] = 1
    letterboxed = segmenter(write(tmp_path, mask), **SEGMENT, preprocessing={"resize": "letterbox"})
    wide, tall = letterboxed([segmentation_input(uniform_image(*size, 0)) for size in ((8, 16), (16, 8))])
    assert wide.contours == []
    assert mask_of_contours(tall.contours[0], 8, 16).sum(axis=1).tolist() == [0] * 14 + [8] * 2


def test_channels_last_mask_of_mediapipe_is_read(tmp_path: Path) -> None:
    values = soft_mask()[np.newaxis, :, :, np.newaxis]
    file = graphs.constant(tmp_path / "model.onnx", {"activation_10": values}, shape=(1, 16, 16, 3), name="input_1")
    assert (found_mask(file, 16, 16) == reference_mask(16, 16)).all()
    facts = inspected(graphs.source(file, **SEGMENT)).description.facts
    assert Fact("mean", "0, 0, 0", Origin.GUESSED) in facts
