"""Test masks with one channel: U-Net, ISNet, matting and MediaPipe's segmenters."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from metadata.model import Fact, Origin
from tasks.vision.contours import mask_of_contours
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import (
    facts_of,
    inspected,
    segment,
    segmentation_input,
    segmenter,
    uniform_image,
)

SEGMENT: dict[str, Any] = {"task_type": "IMAGE_SEGMENTATION"}


def soft_mask(side: int = 16) -> NDArray[np.float32]:
    """Return a smooth blob in 0..1."""
    rows, columns = np.mgrid[:side, :side]
    return np.exp(-((rows - 6) ** 2 + (columns - 9) ** 2) / 20).astype(np.float32)


def write(folder: Path, values: NDArray[np.float32], name: str = "output", **more: NDArray[np.float32]) -> Path:
    outputs = {name: values[np.newaxis, np.newaxis], **{key: array[np.newaxis] for key, array in more.items()}}
    return graphs.constant(folder / "model.onnx", outputs, shape=("batch", 3, 16, 16))


def found_mask(file: Path, height: int, width: int, **settings: Any) -> NDArray[np.uint8]:
    found = segment(file, uniform_image(height, width, 0), **SEGMENT, **settings)
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
    values, image = soft_mask(), uniform_image(16, 16, 0)
    file = write(tmp_path, values)
    assert segment(file, image, **SEGMENT).scores == pytest.approx([values[values > 0.5].mean()])
    nothing = segment(file, image, 0.99, **SEGMENT)
    assert (nothing.labels, len(nothing.scores)) == ([], 0)


@pytest.mark.parametrize(("name", "settings"), [("logits", {}), ("output", {"layout": "mask-logits"}), ("output", {})])
def test_logits_are_compared_with_zero(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    # Tiny logits over 0 are foreground, too.
    logits = np.where(soft_mask() > 0.5, 1e-9 if name == "logits" else 3, -3).astype(np.float32)
    mask = found_mask(write(tmp_path, logits, name), 16, 16, **settings)
    assert (mask == (logits > 0)).all()


def isnet_like(**first: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Return outputs like those of ISNet, each [1, channels, h, w]: the masks of six stages, and their features."""
    random = np.random.default_rng(0)
    masks = {f"d{stage}": random.uniform(0, 1, (1, 1, 16, 16)).astype(np.float32) for stage in range(2, 7)}
    features = {f"hx{stage}d": random.normal(0, 9, (1, 4, 8, 8)).astype(np.float32) for stage in range(1, 7)}
    return {**first, "d1": soft_mask()[np.newaxis, np.newaxis], **masks, **features}


def test_mask_of_isnet_is_found_beside_feature_maps(tmp_path: Path) -> None:
    small, planes = np.full((1, 1, 8, 8), 0.9, np.float32), np.linspace(-9, 9, 256, dtype=np.float32)
    outputs = isnet_like(hx0=np.ones((1, 4, 32, 32), np.float32), hx7=planes.reshape(1, 1, 16, 16), d7=small)
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, 16, 16))
    assert (found_mask(file, 64, 48) == reference_mask(64, 48)).mean() > 0.999
    found = inspected(graphs.source(file, **SEGMENT))
    assert [output.name for output in found.match.outputs] == ["d1"]
    facts = {fact.topic: fact.value for fact in found.description.facts}
    assert facts["further outputs"] == f"{', '.join(name for name in outputs if name != 'd1')}, left out"


def test_declared_logits_are_found_beside_feature_maps(tmp_path: Path) -> None:
    logits = np.where(soft_mask() > 0.5, 3, -3).astype(np.float32)[np.newaxis, np.newaxis]
    outputs = {"features": np.ones((1, 4, 16, 16), np.float32), "a": logits, "b": np.ones_like(logits)}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, 16, 16))
    assert (found_mask(file, 16, 16, layout="mask-logits") == (logits[0, 0] > 0)).all()


def test_scores_of_classes_precede_a_mask_beside_them(tmp_path: Path) -> None:
    outputs = {"logits": np.ones((1, 3, 16, 16), np.float32), "edges": np.ones((1, 1, 16, 16), np.float32)}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, 16, 16))
    assert inspected(graphs.source(file, **SEGMENT)).match.layout == "semantic"


def test_mask_in_the_padding_of_a_letterbox_finds_nothing(tmp_path: Path) -> None:
    mask = np.zeros((16, 16), np.float32)
    mask[-2:] = 1
    letterboxed = segmenter(write(tmp_path, mask), **SEGMENT, preprocessing={"resize": "letterbox"})
    wide, tall = letterboxed([segmentation_input(uniform_image(*size, 0), 0.0) for size in ((8, 16), (16, 8))])
    assert wide.contours == []
    assert mask_of_contours(tall.contours[0], 8, 16).sum(axis=1).tolist() == [0] * 14 + [8] * 2


def test_channels_last_mask_of_mediapipe_is_read(tmp_path: Path) -> None:
    values = soft_mask()[np.newaxis, :, :, np.newaxis]
    file = graphs.constant(tmp_path / "model.onnx", {"activation_10": values}, shape=(1, 16, 16, 3), name="input_1")
    assert (found_mask(file, 16, 16) == reference_mask(16, 16)).all()
    assert facts_of(file, **SEGMENT)["mean"] == Fact("mean", "0, 0, 0", Origin.GUESSED)
