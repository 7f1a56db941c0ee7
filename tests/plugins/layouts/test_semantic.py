"""Test semantic maps: the likeliest class of each pixel, and its mean probability."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from metadata.model import Origin
from tasks.image_segmentation import Segments
from tasks.inference.error import InferenceError
from tasks.vision.contours import mask_of_contours
from tasks.vision.tiles import ScoredTile
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import inspected, segment, segmentation_input, segmenter, uniform_image

LABELS = ("ground", "tree", "car")
SEGMENT: dict[str, Any] = {"task_type": "IMAGE_SEGMENTATION", "labels": LABELS}


def probabilities() -> NDArray[np.float32]:
    """Return [1, 3, 8, 8]: ground with 0.6 on the left, tree with 0.8 on the right; car is likeliest nowhere."""
    values = np.full((1, 3, 8, 8), 0.1, np.float32)
    values[0, 0, :, :4], values[0, 1, :, :4], values[0, 1, :, 4:] = 0.6, 0.3, 0.8
    return values


def write(folder: Path, output: NDArray[np.float32], name: str = "logits", **options: Any) -> Path:
    options.setdefault("shape", ("batch", 3, 32, 32))
    return graphs.constant(folder / "model.onnx", {name: output}, **options)


def masks(found: Segments, width: int, height: int) -> list[NDArray[np.uint8]]:
    return [mask_of_contours(contours, width, height) for contours in found.contours]


@pytest.mark.parametrize(("kind", "batch"), [("logits", "batch"), ("probabilities", 1), ("half", 2)])
def test_each_pixel_has_its_likeliest_class(tmp_path: Path, kind: str, batch: int | str) -> None:
    output = probabilities() if kind == "probabilities" else np.log(probabilities()) + 4
    output_types = {"map": TensorProto.FLOAT16} if kind == "half" else None
    model = segmenter(write(tmp_path, output, "map", shape=(batch, 3, 32, 32), output_types=output_types), **SEGMENT)
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
    found = segment(write(tmp_path, probabilities(), "map"), uniform_image(32, 32, 0), 0.7, **SEGMENT)
    assert found.labels == ["tree"]
    (tree,) = masks(found, 32, 32)
    assert not tree[:, :13].any()


def test_padding_belongs_to_no_class(tmp_path: Path) -> None:
    output = np.zeros((1, 3, 8, 8), np.float32)
    output[0, 2, :2] = output[0, 2, 6:] = 5
    output[0, 1, 2:6] = 5
    image = uniform_image(32, 64, 0)
    found = segment(write(tmp_path, output), image, **SEGMENT, preprocessing={"resize": "letterbox"})
    assert found.labels == ["tree"]
    assert masks(found, 64, 32)[0].all()


def test_large_image_is_computed_in_tiles(tmp_path: Path) -> None:
    found = segment(write(tmp_path, probabilities(), "map"), uniform_image(1500, 2400, 0), **SEGMENT)
    ground, tree = masks(found, 2400, 1500)
    assert (ground + tree == 1).all()
    assert ground[:, :1040].all()


def test_tile_gets_the_probabilities_of_its_pixels(tmp_path: Path) -> None:
    item = segmentation_input(uniform_image(32, 32, 0))
    item = msgspec.structs.replace(item, image=ScoredTile(item.image.pixels))
    (found,) = segmenter(write(tmp_path, np.log(probabilities())), **SEGMENT)([item])
    assert found.pixel_scores is not None
    assert (found.labels, found.pixel_scores.shape) == (list(LABELS), (3, 32, 32))
    assert np.allclose(found.pixel_scores[:, 16, [0, 31]], probabilities()[0, :, 4][:, [0, 7]], atol=1e-5)


def test_single_nan_cell_is_ignored_and_only_nan_is_a_failure_of_the_model(tmp_path: Path) -> None:
    output, image = probabilities(), uniform_image(32, 32, 0)
    output[0, :, 0, 0] = np.nan
    found = segment(write(tmp_path, np.log(output)), image, **SEGMENT)
    assert found.labels == ["ground", "tree"]
    assert np.isfinite(found.scores).all()
    with pytest.raises(InferenceError, match="all NaN"):
        segment(write(tmp_path, output * np.nan), image, **SEGMENT)


def test_segformer_is_recognised_by_its_files(tmp_path: Path) -> None:
    config = {"architectures": ["SegformerForSemanticSegmentation"], "model_type": "segformer"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": dict(enumerate(LABELS))}))
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3})
    )
    file = write(tmp_path, np.log(probabilities()), shape=("b", 3, "h", "w"))
    description = inspected(graphs.source(file)).description
    assert (description.layout, description.labels) == ("semantic", LABELS)
    assert Origin.GUESSED not in {fact.origin for fact in description.facts}
