"""Features measured from an image and from an answer."""

import importlib
from typing import Any

import cv2
import numpy as np
import pytest

from app.plugins.drift import measurement
from app.plugins.drift.measurement import BUNDLED, DriftInput, Embedder, image_features, measure_images
from app.plugins.drift.sample import IMAGE_FEATURES, DriftError
from app.plugins.drift.service import load_embedder
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.vision.image import Image
from tests.support.servers.server_process import ROOT

MAKING: Any = importlib.import_module("fixtures.drift_embedder")


def measured(pixels: Any) -> dict[str, float]:
    """Return the features of an image by name."""
    return dict(zip(IMAGE_FEATURES, image_features(Image(np.asarray(pixels, np.uint8))).tolist(), strict=True))


def photograph() -> Any:
    """Return the pixels of a real photograph."""
    return cv2.imread(str(ROOT / "fixtures" / "images" / "photo.jpg"), cv2.IMREAD_COLOR_RGB)


def test_each_feature_measures_its_property() -> None:
    pixels = photograph()
    plain = measured(pixels)
    assert measured(pixels * 0.85)["brightness"] == pytest.approx(plain["brightness"] * 0.85, rel=0.02)
    assert measured(cv2.GaussianBlur(pixels, (0, 0), 1))["sharpness"] < plain["sharpness"] - 0.5
    grey = np.repeat(pixels.mean(axis=2, keepdims=True), 3, axis=2)
    assert measured(grey)["saturation"] == 0 < plain["saturation"]
    assert measured(pixels[..., ::-1])["red"] == pytest.approx(plain["blue"])
    assert plain["aspect"] == pytest.approx(np.log2(451 / 300))
    assert plain["size"] == pytest.approx(np.log2(451 * 300))
    assert measured(np.zeros((9, 9, 3)))["dark pixels"] == measured(np.full((9, 9, 3), 255))["bright pixels"] == 1


def test_every_image_shape_has_finite_features_and_embedding() -> None:
    rng, embedder = np.random.default_rng(0), load_embedder(BUNDLED)
    for shape in ((1, 1), (1, 5000), (5000, 1), (3, 2)):
        image = Image(rng.integers(0, 256, (*shape, 3), np.uint8))
        assert np.isfinite(image_features(image)).all()
        assert np.isfinite(embedder([image])).all()


def test_features_without_findings_are_zero() -> None:
    assert measurement.prediction_features([]).tolist() == [0, 0, 0]
    assert measurement.prediction_features([{"score": 0.5}, {"score": 1.0}]).tolist() == [2, 1, 0.75]


def test_only_best_class_of_classification_is_counted() -> None:
    records = [{"label": "cat", "score": 0.75}, {"label": "dog", "score": 0.25}]
    seen = DriftInput(id="a", image=None, records=records)
    (best,) = measure_images([seen], "IMAGE_CLASSIFICATION", None)
    assert best.labels == {"cat": 1}
    (all_classes,) = measure_images([seen], "OBJECT_DETECTION", None)
    assert all_classes.labels == {"cat": 1, "dog": 1}
    (answer,) = measure_images([seen], "IMAGE_TEXT_TO_TEXT", None)
    assert answer.findings is None


def test_bundled_embedder_equals_output_of_its_script_and_is_small() -> None:
    assert BUNDLED.read_bytes() == MAKING.embedder().SerializeToString(deterministic=True)
    assert len(BUNDLED.read_bytes()) < 200_000


def test_embedding_does_not_depend_on_the_batch() -> None:
    embedder = load_embedder(BUNDLED)
    pixels = photograph()
    images = [Image(pixels), Image(pixels[::-1]), Image(pixels[:100, :50])]
    together = embedder(images)
    assert together.shape == (3, 384)
    for image, row in zip(images, together, strict=True):
        assert np.allclose(embedder([image])[0], row, atol=1e-5)


def test_classifier_graph_gives_embeddings() -> None:
    classes = load_embedder(ROOT / "fixtures" / "models" / "classifier" / "model.onnx")
    assert classes([Image(photograph())] * 2).shape == (2, 20)


@pytest.mark.parametrize(
    ("shape", "datatype"), [((-1, 10), Datatype.FP32), ((1, 1, 8, 8), Datatype.FP32), ((1, 3, 8, 8), Datatype.UINT8)]
)
def test_graph_without_image_input_is_rejected(shape: tuple[int, ...], datatype: Datatype) -> None:
    spec = TensorSpec(name="x", datatype=datatype, shape=shape)
    with pytest.raises(DriftError, match="to make embeddings with"):
        Embedder(BUNDLED, [spec], [spec], lambda _input, _output, batch: batch)


def test_file_that_is_not_onnx_is_rejected() -> None:
    with pytest.raises(DriftError, match="not an ONNX file"):
        load_embedder(ROOT / "README.md")
