"""Test masks with one channel, semantic maps, and maps of class numbers."""

import json
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from metadata.model import Fact, Origin
from tasks.image_segmentation import Segments
from tasks.inference.error import InferenceError
from tasks.vision.contours import mask_of_contours
from tasks.vision.image import ScoredTile
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import (
    facts_of,
    inspected,
    segment,
    segmentation_input,
    segmenter,
    uniform_image,
)

MASK: dict[str, Any] = {"task_type": "IMAGE_SEGMENTATION"}


def soft_mask(side: int = 16) -> NDArray[np.float32]:
    """Return a smooth blob in 0..1."""
    rows, columns = np.mgrid[:side, :side]
    return np.exp(-((rows - 6) ** 2 + (columns - 9) ** 2) / 20).astype(np.float32)


def write_mask(folder: Path, values: NDArray[np.float32], name: str = "output") -> Path:
    return graphs.constant(folder / "model.onnx", {name: values[np.newaxis, np.newaxis]}, shape=("batch", 3, 16, 16))


def found_mask(file: Path, height: int, width: int, **settings: Any) -> NDArray[np.uint8]:
    found = segment(file, uniform_image(height, width, 0), **MASK, **settings)
    assert found.labels == ["foreground"]
    return mask_of_contours(found.contours[0], width, height)


def reference_mask(height: int, width: int) -> NDArray[np.bool_]:
    """Return the usual post-processing: enlarge the mask to the image, and compare it with 0.5."""
    return np.asarray(cv2.resize(soft_mask(), (width, height), interpolation=cv2.INTER_LINEAR) > 0.5)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (64, 48), (333, 500)])
@pytest.mark.verifies("graphs with known answers", "masks")
def test_mask_equals_enlarged_and_thresholded_output(tmp_path: Path, height: int, width: int) -> None:
    file = write_mask(tmp_path, soft_mask())
    assert (found_mask(file, height, width) == reference_mask(height, width)).mean() > 0.999


def test_score_is_mean_probability_of_foreground(tmp_path: Path) -> None:
    values, image = soft_mask(), uniform_image(16, 16, 0)
    file = write_mask(tmp_path, values)
    assert segment(file, image, **MASK).scores == pytest.approx([values[values > 0.5].mean()])
    nothing = segment(file, image, 0.99, **MASK)
    assert (nothing.labels, len(nothing.scores)) == ([], 0)


@pytest.mark.parametrize(("name", "settings"), [("logits", {}), ("output", {"layout": "mask-logits"}), ("output", {})])
def test_logits_are_compared_with_zero(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    # Tiny logits over 0 are foreground, too.
    logits = np.where(soft_mask() > 0.5, 1e-9 if name == "logits" else 3, -3).astype(np.float32)
    mask = found_mask(write_mask(tmp_path, logits, name), 16, 16, **settings)
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
    found = inspected(graphs.source(file, **MASK))
    assert [output.name for output in found.match.outputs] == ["d1"]
    facts = {fact.topic: fact.value for fact in found.description.facts}
    assert facts["left out"] == ", ".join(f"{name} {list(outputs[name].shape)}" for name in outputs if name != "d1")


def test_declared_logits_are_found_beside_feature_maps(tmp_path: Path) -> None:
    logits = np.where(soft_mask() > 0.5, 3, -3).astype(np.float32)[np.newaxis, np.newaxis]
    outputs = {"features": np.ones((1, 4, 16, 16), np.float32), "a": logits, "b": np.ones_like(logits)}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, 16, 16))
    assert (found_mask(file, 16, 16, layout="mask-logits") == (logits[0, 0] > 0)).all()


def test_scores_of_classes_precede_a_mask_beside_them(tmp_path: Path) -> None:
    outputs = {"logits": np.ones((1, 3, 16, 16), np.float32), "edges": np.ones((1, 1, 16, 16), np.float32)}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, 16, 16))
    assert inspected(graphs.source(file, **MASK)).match.layout == "semantic"


def test_mask_in_the_padding_of_a_letterbox_finds_nothing(tmp_path: Path) -> None:
    mask = np.zeros((16, 16), np.float32)
    mask[-2:] = 1
    letterboxed = segmenter(write_mask(tmp_path, mask), **MASK, preprocessing={"resize": "letterbox"})
    wide, tall = letterboxed([segmentation_input(uniform_image(*size, 0), 0.0) for size in ((8, 16), (16, 8))])
    assert wide.contours == []
    assert mask_of_contours(tall.contours[0], 8, 16).sum(axis=1).tolist() == [0] * 14 + [8] * 2


def test_channels_last_mask_of_mediapipe_is_read(tmp_path: Path) -> None:
    values = soft_mask()[np.newaxis, :, :, np.newaxis]
    file = graphs.constant(tmp_path / "model.onnx", {"activation_10": values}, shape=(1, 16, 16, 3), name="input_1")
    assert (found_mask(file, 16, 16) == reference_mask(16, 16)).all()
    assert facts_of(file, **MASK)["mean"] == Fact("mean", "0, 0, 0", Origin.GUESSED)


LABELS = ("ground", "tree", "car")
SEGMENT: dict[str, Any] = {"task_type": "IMAGE_SEGMENTATION", "labels": LABELS}


def probabilities() -> NDArray[np.float32]:
    """Return [1, 3, 8, 8]: ground with 0.6 on the left, tree with 0.8 on the right; car is likeliest nowhere."""
    values = np.full((1, 3, 8, 8), 0.1, np.float32)
    values[0, 0, :, :4], values[0, 1, :, :4], values[0, 1, :, 4:] = 0.6, 0.3, 0.8
    return values


def write_semantic(folder: Path, output: NDArray[np.float32], name: str = "logits", **options: Any) -> Path:
    options.setdefault("shape", ("batch", 3, 32, 32))
    return graphs.constant(folder / "model.onnx", {name: output}, **options)


def masks(found: Segments, width: int, height: int) -> list[NDArray[np.uint8]]:
    return [mask_of_contours(contours, width, height) for contours in found.contours]


@pytest.mark.parametrize(("kind", "batch"), [("logits", "batch"), ("probabilities", 1), ("half", 2)])
def test_each_pixel_has_its_likeliest_class(tmp_path: Path, kind: str, batch: int | str) -> None:
    output = probabilities() if kind == "probabilities" else np.log(probabilities()) + 4
    output_types = {"map": TensorProto.FLOAT16} if kind == "half" else None
    file = write_semantic(tmp_path, output, "map", shape=(batch, 3, 32, 32), output_types=output_types)
    model = segmenter(file, **SEGMENT)
    for found in model([segmentation_input(uniform_image(50, 200, 0)), segmentation_input(uniform_image(50, 200, 9))]):
        assert found.labels == ["ground", "tree"]
        assert found.scores == pytest.approx([0.6, 0.8], abs=2e-3)
        ground, tree = masks(found, 200, 50)
        assert (ground + tree == 1).all()
        # Between the two middle columns of cells, 25 pixels wide, the more probable class covers more pixels.
        assert ground[:, :87].all()
        assert tree[:, 113:].all()
        assert ground.sum() < tree.sum()


def test_pixels_of_class_below_threshold_are_not_reassigned(tmp_path: Path) -> None:
    found = segment(write_semantic(tmp_path, probabilities(), "map"), uniform_image(32, 32, 0), 0.7, **SEGMENT)
    assert found.labels == ["tree"]
    (tree,) = masks(found, 32, 32)
    assert not tree[:, :13].any()


def test_padding_belongs_to_no_class(tmp_path: Path) -> None:
    output = np.zeros((1, 3, 8, 8), np.float32)
    output[0, 2, :2] = output[0, 2, 6:] = 5
    output[0, 1, 2:6] = 5
    image = uniform_image(32, 64, 0)
    found = segment(write_semantic(tmp_path, output), image, **SEGMENT, preprocessing={"resize": "letterbox"})
    assert found.labels == ["tree"]
    assert masks(found, 64, 32)[0].all()


def test_large_image_is_computed_in_tiles(tmp_path: Path) -> None:
    found = segment(write_semantic(tmp_path, probabilities(), "map"), uniform_image(1500, 2400, 0), **SEGMENT)
    ground, tree = masks(found, 2400, 1500)
    assert (ground + tree == 1).all()
    assert ground[:, :1040].all()


def test_tile_gets_the_probabilities_of_its_pixels(tmp_path: Path) -> None:
    item = segmentation_input(uniform_image(32, 32, 0))
    item = msgspec.structs.replace(item, image=ScoredTile(item.image.pixels))
    (found,) = segmenter(write_semantic(tmp_path, np.log(probabilities())), **SEGMENT)([item])
    assert found.pixel_scores is not None
    assert (found.labels, found.pixel_scores.shape) == (list(LABELS), (3, 32, 32))
    assert np.allclose(found.pixel_scores[:, 16, [0, 31]], probabilities()[0, :, 4][:, [0, 7]], atol=1e-5)


def test_single_nan_cell_is_ignored_and_only_nan_is_a_failure_of_the_model(tmp_path: Path) -> None:
    output, image = probabilities(), uniform_image(32, 32, 0)
    output[0, :, 0, 0] = np.nan
    found = segment(write_semantic(tmp_path, np.log(output)), image, **SEGMENT)
    assert found.labels == ["ground", "tree"]
    assert np.isfinite(found.scores).all()
    with pytest.raises(InferenceError, match="all NaN"):
        segment(write_semantic(tmp_path, output * np.nan), image, **SEGMENT)


@pytest.mark.verifies("graphs with known answers", "segformer")
def test_segformer_is_recognised_by_its_files(tmp_path: Path) -> None:
    config = {"architectures": ["SegformerForSemanticSegmentation"], "model_type": "segformer"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": dict(enumerate(LABELS))}))
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3})
    )
    file = write_semantic(tmp_path, np.log(probabilities()), shape=("b", 3, "h", "w"))
    description = inspected(graphs.source(file)).description
    assert (description.layout, description.labels) == ("semantic", LABELS)
    assert Origin.GUESSED not in {fact.origin for fact in description.facts}


PROPERTIES = graphs.properties("semantic", LABELS, (8, 8))


def write_numbers(folder: Path, channels: int | None = None, kind: int = TensorProto.UINT8, top: int = 2) -> Path:
    """Write a map: rows 0 to 3 have class 0 and a square of class `top`, rows 4 to 7 have class 1."""
    numbers = np.zeros((1, 8, 8), np.float32)
    numbers[0, 4:] = 1
    numbers[0, 2:4, 6:] = top
    outputs: dict[str, Any] = {"output0": numbers if channels is None else numbers[:, np.newaxis]}
    options: dict[str, Any] = {"shape": ("batch", 3, 8, 8), "output_types": {"output0": kind}}
    return graphs.constant(folder / "model.onnx", outputs, properties=PROPERTIES, **options)


@pytest.mark.parametrize(
    ("channels", "kind"), [(None, TensorProto.UINT8), (1, TensorProto.INT32), (1, TensorProto.INT64)]
)
@pytest.mark.verifies("graphs with known answers", "class-map")
def test_each_pixel_has_class_of_its_cell(tmp_path: Path, channels: int | None, kind: int) -> None:
    model = segmenter(write_numbers(tmp_path, channels, kind))
    # In a letterbox, a 64x32 image covers rows 2 to 5, with eight pixels per cell.
    for found in model([segmentation_input(uniform_image(32, 64, 0)), segmentation_input(uniform_image(32, 64, 0))]):
        assert found.labels == ["ground", "tree", "car"]
        assert found.scores.tolist() == [1, 1, 1]
        ground, tree, car = (mask_of_contours(contours, 64, 32) for contours in found.contours)
        assert tree[16:].all()
        assert not tree[:16].any()
        assert car[:16, 48:].all()
        assert ground[:16, :48].all()
        assert (ground + tree + car == 1).all()


def test_map_with_one_label_has_the_class_as_1_and_the_rest_as_0(tmp_path: Path) -> None:
    numbers = np.zeros((1, 8, 8), np.float32)
    numbers[0, 4:] = 1
    known, types = graphs.properties("semantic", ["road"], (8, 8)), {"output0": TensorProto.UINT8}
    file = graphs.constant(tmp_path / "model.onnx", {"output0": numbers}, properties=known, output_types=types)
    found = segment(file, uniform_image(8, 8, 0))
    assert (found.labels, found.scores.tolist()) == (["road"], [1])
    assert (mask_of_contours(found.contours[0], 8, 8) == numbers[0]).all()
    facts = facts_of(file)
    assert facts["class numbers"].value == "1 is the class, 0 is the rest, left out"
    assert facts["scores"].value == "1 for each class found, because the graph gives no probabilities"
    nothing = graphs.constant(tmp_path / "nothing.onnx", {"output0": numbers * 0}, properties=known, output_types=types)
    assert segment(nothing, uniform_image(8, 8, 0)).labels == []


def test_class_without_label_is_model_failure(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="class number 7, but has only 3 labels"):
        segment(write_numbers(tmp_path, top=7), uniform_image(32, 64, 0))


def test_map_with_too_many_classes_is_model_failure(tmp_path: Path) -> None:
    outputs = {"depth": np.arange(4096, dtype=np.float32).reshape(1, 64, 64)}
    output_types = {"depth": TensorProto.INT64}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("batch", 3, 64, 64), output_types=output_types)
    with pytest.raises(InferenceError, match="4096 class numbers for one image"):
        segment(file, uniform_image(64, 64, 0))


def test_map_finer_than_image_may_leave_class_without_pixels(tmp_path: Path) -> None:
    """Map 8x8 cells to an image of 2x2 pixels: the class of one cell lies under no pixel centre."""
    numbers = np.zeros((1, 8, 8), np.float32)
    numbers[0, :, 4:] = 1
    numbers[0, 4, 3] = 2
    output_types = {"output0": TensorProto.INT32}
    file = graphs.constant(tmp_path / "model.onnx", {"output0": numbers}, output_types=output_types)
    found = segment(file, uniform_image(2, 2, 0))
    assert [len(contours) for contours in found.contours] == [1, 1, 0]
    assert (mask_of_contours(found.contours[1], 2, 2) == [[0, 1], [0, 1]]).all()
