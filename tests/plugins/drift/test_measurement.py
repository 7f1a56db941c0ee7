"""Features measured from an image and from an answer, and files of baselines, also those of released versions."""

import importlib
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from app.plugins.drift import measurement
from app.plugins.drift.baseline import Baseline, read_baseline, write_baseline
from app.plugins.drift.measurement import BUNDLED, DriftInput, Embedder, image_features, measure_images
from app.plugins.drift.sample import IMAGE_FEATURES, DriftError
from app.plugins.drift.service import load_embedder
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.vision.image import Image, decode_image
from tests.support.data.drift_samples import sample
from tests.support.servers.server_process import ROOT

MAKING: Any = importlib.import_module("fixtures.drift_embedder")


def measured(pixels: Any) -> dict[str, float]:
    return dict(zip(IMAGE_FEATURES, image_features(Image(np.asarray(pixels, np.uint8))).tolist(), strict=True))


def photograph() -> Any:
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
    session: Any = SimpleNamespace(file=BUNDLED, inputs=[spec], outputs=[spec])
    with pytest.raises(DriftError, match="to make embeddings with"):
        Embedder(session)


def test_file_that_is_not_onnx_is_rejected() -> None:
    with pytest.raises(DriftError, match="not an ONNX file"):
        load_embedder(ROOT / "README.md")


def write_valid(folder: Path) -> Path:
    baseline = Baseline(sample=sample(40, with_predictions=True), embedder="e.onnx", embedder_digest="d", model="m")
    write_baseline(folder / "b.npz", baseline)
    return folder / "b.npz"


def change_file(path: Path, **arrays: Any) -> Path:
    """Replace arrays of a baseline file; `header` replaces fields of the header."""
    with np.load(path) as archive:
        contents = {name: archive[name] for name in archive.files}
    header = json.loads(contents["header"].tobytes()) | arrays.pop("header", {})
    contents["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **{name: array for name, array in (contents | arrays).items() if array is not None})
    return path


def test_baseline_round_trips(tmp_path: Path) -> None:
    read = read_baseline(write_valid(tmp_path))
    original = sample(40, with_predictions=True)
    assert (read.embedder, read.embedder_digest, read.model) == ("e.onnx", "d", "m")
    for name in original.__struct_fields__:
        np.testing.assert_array_equal(getattr(read.sample, name), getattr(original, name))
    assert [path.name for path in tmp_path.iterdir()] == ["b.npz"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"header": {"format": 2}}, "format 2, and this program reads format 1"),
        ({"header": {"ids": ["x"]}}, "its parts are not of the same 1 images"),
        ({"header": {"labels": None}}, "labels"),
        ({"numbers": None}, "it has no numbers"),
        ({"counts": np.zeros((40, 2), np.float32)}, "its counts are float32 of 2 dimensions"),
        ({"numbers": np.full((40, 17), np.inf)}, "not finite"),
        ({"counts": np.full((40, 2), -1)}, "some of its counts are below 0"),
        ({"numbers": np.array([[{}]], object)}, "Object arrays cannot be loaded"),
    ],
)
def test_inconsistent_baseline_is_rejected(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DriftError, match=message):
        read_baseline(change_file(write_valid(tmp_path), **change))


def test_file_that_is_not_a_baseline_is_rejected(tmp_path: Path) -> None:
    path = write_valid(tmp_path)
    for content in (path.read_bytes()[:-300], b"", b"PK\x03\x04", b"no archive", b"\x93NUMPY"):
        path.write_bytes(content)
        with pytest.raises(DriftError, match="is not a baseline"):
            read_baseline(path)
    with pytest.raises(DriftError, match="cannot be read: No such file"):
        read_baseline(tmp_path / "none.npz")


def test_decompression_bomb_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "b.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("numbers.npy", b"x")
        archive.infolist()[0].file_size = (1 << 31) - 10
    with pytest.raises(DriftError, match="more than 1 GiB"):
        read_baseline(path)


PHOTO = Path(__file__).parents[3] / "fixtures" / "images" / "photo.jpg"
FEATURES = {
    "brightness": 119.47389705882352, "contrast": 30.809618476951098, "sharpness": 6.08340311050415,
    "saturation": 0.43005692958831787, "red": 147.69770220588236, "green": 111.43731617647059,
    "blue": 86.80799632352941, "red deviation": 30.799799378875232, "green deviation": 31.000950604543203,
    "blue deviation": 36.311567777240946, "dark pixels": 0.002022058823529412, "bright pixels": 0.0,
    "aspect": 0.5881649327595001, "size": 17.045802313751263,
}  # fmt: skip
"""What that release measured of the photograph."""


def test_baseline_of_the_last_release_stays_valid(tmp_path: Path) -> None:
    header = {
        "format": 1, "ids": [str(number) for number in range(30)], "task_type": "OBJECT_DETECTION", "labels": ["cat"],
        "features": [*FEATURES, "findings", "best score", "mean score"], "metadata": [{"camera": "north"}] * 30,
        "embedder": "", "embedder_digest": "", "model": "m", "source": "30 images", "created": "2026-11-21T00:00:00Z",
    }  # fmt: skip
    numbers = np.tile([*FEATURES.values(), 1.0, 0.9, 0.9], (30, 1))
    path = tmp_path / "drift-baseline.npz"
    arrays = {"numbers": numbers, "embeddings": np.zeros((30, 0), np.float32), "counts": np.ones((30, 1), np.int64)}
    np.savez(path, allow_pickle=False, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    sample = read_baseline(path).sample
    assert list(sample.features)[: len(FEATURES)] == list(FEATURES)
    assert sample.numbers[0][: len(FEATURES)] == pytest.approx(image_features(decode_image(PHOTO.read_bytes())))
