"""Maps of classes: where each is the likeliest, and how likely on average."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from app.engine.description import Origin
from tasks.exchange.error import InferenceError
from tasks.image_segmentation import Segments
from tasks.vision.contours import mask_of_contours
from tests.app.runtimes.onnxruntime import graphs
from tests.app.runtimes.onnxruntime.answers import flat, inspected, outlined, segmenter

LABELS = ("ground", "tree", "car")
SEGMENT: dict[str, Any] = {"task_type": "IMAGE_SEGMENTATION", "labels": LABELS}


def shares() -> NDArray[np.float32]:
    """[1, 3, 8, 8]: the left half is ground with 0.6, the right half tree with 0.8; car is nowhere the likeliest."""
    found = np.full((1, 3, 8, 8), 0.1, np.float32)
    found[0, 0, :, :4] = 0.6
    found[0, 1, :, :4] = 0.3
    found[0, 0, :, 4:] = 0.1
    found[0, 1, :, 4:] = 0.8
    return found


def write(folder: Path, output: NDArray[np.float32], name: str = "logits", **options: Any) -> Path:
    options.setdefault("shape", ("batch", 3, 32, 32))
    return graphs.constant(folder / "model.onnx", {name: output}, **options)


def masks(found: Segments, width: int, height: int) -> list[NDArray[np.uint8]]:
    return [mask_of_contours(contours, width, height) for contours in found.contours]


@pytest.mark.parametrize("batch", ["batch", 1, 2])
@pytest.mark.parametrize("kind", ["logits", "probabilities", "half"])
def test_each_pixel_is_of_its_likeliest_class(tmp_path: Path, kind: str, batch: int | str) -> None:
    output = shares() if kind == "probabilities" else np.log(shares()) + 4
    kinds = {"map": TensorProto.FLOAT16} if kind == "half" else None
    model = segmenter(write(tmp_path, output, "map", shape=(batch, 3, 32, 32), kinds=kinds), **SEGMENT)
    for found in model([outlined(flat(50, 200, 0)), outlined(flat(50, 200, 9))]):
        assert found.labels == ["ground", "tree"]
        assert found.scores == pytest.approx([0.6, 0.8], abs=2e-3)
        ground, tree = masks(found, 200, 50)
        assert (ground + tree == 1).all()
        # Between the two middle columns of cells, 25 pixels wide, the surer class reaches a little further.
        assert ground[:, :87].all()
        assert tree[:, 113:].all()
        assert ground.sum() < tree.sum()


def test_the_border_lies_where_the_interpolated_numbers_are_equal(tmp_path: Path) -> None:
    output = np.zeros((1, 2, 8, 8), np.float32)
    output[0, 0, :, :4] = 2
    output[0, 1, :, 4:] = 2
    file = write(tmp_path, output, shape=("batch", 3, 8, 8))
    (found,) = segmenter(file, task_type="IMAGE_SEGMENTATION")([outlined(flat(64, 160, 0))])
    left, right = masks(found, 160, 64)
    assert left[:, :80].all()
    assert right[:, 80:].all()
    assert found.scores == pytest.approx([np.exp(2) / (np.exp(2) + 1)] * 2)


def test_a_class_that_scores_too_little_leaves_its_pixels_to_nobody(tmp_path: Path) -> None:
    (found,) = segmenter(write(tmp_path, shares(), "map"), **SEGMENT)([outlined(flat(32, 32, 0), 0.7)])
    assert found.labels == ["tree"]
    (tree,) = masks(found, 32, 32)
    assert not tree[:, :13].any()


def test_padding_is_no_part_of_any_class(tmp_path: Path) -> None:
    output = np.zeros((1, 3, 8, 8), np.float32)
    output[0, 2, :2] = output[0, 2, 6:] = 5
    output[0, 1, 2:6] = 5
    model = segmenter(write(tmp_path, output), **SEGMENT, preprocessing={"resize": "letterbox"})
    (found,) = model([outlined(flat(32, 64, 0))])
    assert found.labels == ["tree"]
    assert masks(found, 64, 32)[0].all()


def test_large_pictures_are_done_in_tiles(tmp_path: Path) -> None:
    (found,) = segmenter(write(tmp_path, shares(), "map"), **SEGMENT)([outlined(flat(1500, 2400, 0))])
    ground, tree = masks(found, 2400, 1500)
    assert (ground + tree == 1).all()
    assert ground[:, :1040].all()


def test_numbers_that_are_none_do_no_harm(tmp_path: Path) -> None:
    output = shares()
    output[0, :, 0, 0] = np.nan
    (found,) = segmenter(write(tmp_path, np.log(output)), **SEGMENT)([outlined(flat(32, 32, 0))])
    assert found.labels == ["ground", "tree"]
    assert np.isfinite(found.scores).all()


def test_numbers_of_which_none_is_one_are_a_failure(tmp_path: Path) -> None:
    file = write(tmp_path, np.full((1, 3, 8, 8), np.nan, np.float32))
    with pytest.raises(InferenceError, match="all NaN"):
        segmenter(file, **SEGMENT)([outlined(flat(32, 32, 0))])


def test_a_segformer_is_known_by_its_files(tmp_path: Path) -> None:
    config = {"architectures": ["SegformerForSemanticSegmentation"], "model_type": "segformer"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": dict(enumerate(LABELS))}))
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3})
    )
    description = inspected(graphs.source(write(tmp_path, np.log(shares()), shape=("b", 3, "h", "w")))).description
    assert (description.layout, description.labels) == ("semantic", LABELS)
    assert Origin.GUESSED not in {fact.origin for fact in description.facts}
