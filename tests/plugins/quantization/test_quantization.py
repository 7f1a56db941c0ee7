"""Quantisation writes a new version whose answers stay close, with its origin."""

import hashlib
import importlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import ArrayLike
from onnx import numpy_helper
from onnx.parser import parse_model
from PIL import Image

from app.core.assembly.discovery import model_at
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.plugins.quantization.quantization import next_version, quantize
from app.public_api.in_process import InProcessModel
from fixtures.scenes import DETECT, compose
from tests.core.runtimes.onnxruntime import graphs
from tests.support.servers.server_process import ROOT

# onnx is partly typed.
ONNX: Any = importlib.import_module("onnx")
MODELS = ROOT / "fixtures" / "models"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """Return files of fifty scenes, which is just enough to judge a model."""
    folder = tmp_path_factory.mktemp("images")
    files = [folder / f"{number:02}.jpg" for number in range(50)]
    random = np.random.default_rng(0)
    for file in files:
        background = np.full((240, 320, 3), random.integers(40, 200, 3), np.uint8)
        Image.fromarray(compose(random, background, DETECT).image).save(file, quality=95)
    return files


GRAPH_WITHOUT_INT8 = """(float[1, 3, 8, 8] images) => (float[1, 3] probabilities) {
    means = ReduceMean<axes = [2, 3], keepdims = 0>(images)
    probabilities = Softmax(means)
}"""


def copy_of(folder: Path, model: str, **settings: object) -> ModelSource:
    copy = shutil.copytree(MODELS / model, folder / model)
    (copy / SETTINGS_FILE).write_text(json.dumps(settings))
    (source,) = model_at(copy)
    return source


@pytest.mark.slow
def test_quantised_version_is_served_with_close_answers_and_the_same_settings(
    images: Sequence[Path], tmp_path: Path
) -> None:
    source = copy_of(tmp_path, "detector", parameters={"score_threshold": 0.4}, name="shapes")
    exact = InProcessModel(source.folder)
    not_an_image = tmp_path / "broken.jpg"
    not_an_image.write_bytes(b"nothing")
    steps: list[int] = []
    folder = next_version(source)
    provenance = quantize(source, [not_an_image, *images], folder, steps.append)
    assert folder == source.folder / "2"
    assert steps == [1] * 2 * (len(images) + 1)
    assert provenance.images == len(images)
    assert provenance.source_sha256 == hashlib.sha256((MODELS / "detector" / "model.onnx").read_bytes()).hexdigest()
    quantised = InProcessModel(source.folder)
    assert (quantised.source.name, quantised.source.version) == ("shapes", "2")
    assert quantised.source.settings == msgspec.structs.replace(source.settings, precision="int8")
    (precision,) = [fact.value for fact in quantised.description.facts if fact.topic == "precision"]
    assert precision.startswith(f"int8, made of version 1 with {len(images)} images by onnxruntime ")
    verified = (
        r"verified: \d\.\d% of \d+ objects in 50 images have no partner at IoU 0.5, on \w+ with(out)? instructions"
    )
    assert re.search(verified, precision)
    assert provenance.verdict
    assert provenance.verdict.changed <= 0.05
    scene = np.asarray(Image.open(ROOT / "fixtures" / "images" / "scene.jpg"))
    expected, found = (msgspec.to_builtins(model.ask(scene)) for model in (exact, quantised))
    assert [record["label"] for record in found] == [record["label"] for record in expected]
    for record, exact_record in zip(found, expected, strict=True):
        for name in ("xmin", "ymin", "xmax", "ymax"):
            assert record[name] == pytest.approx(exact_record[name], abs=8)
        assert record["score"] == pytest.approx(exact_record["score"], abs=0.1)
    with pytest.raises(ModelError, match="exists already"):
        quantize(source, images, folder)
    assert [path.name for path in source.folder.iterdir() if path.name.startswith(".")] == []


def write_graph(folder: Path, features: str, opset: int, sides: str = "32, 32", **weights: ArrayLike) -> ModelSource:
    """Write a classifier of an image with four classes: its `features` in ONNX's text format, before the same head."""
    text = f"""
        <ir_version: 6, opset_import: ["" : {opset}]> graph (float[n, 3, {sides}] image) => (float[n, 4] logits) {{
            {features}
            average = GlobalAveragePool(features)
            flat = Flatten(average)
            logits = MatMul(flat, classes)
        }}
    """
    model = parse_model(text)
    for name, array in weights.items():
        numbers = np.asarray(array)
        values = numbers if numbers.dtype == np.int64 else numbers.astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    settings = {"task_type": "IMAGE_CLASSIFICATION", "labels": ["a", "b", "c", "d"]}
    (folder / SETTINGS_FILE).write_text(json.dumps(settings))
    (source,) = model_at(folder)
    return source


@pytest.mark.slow
def test_graph_with_split_and_slice_and_weights_in_another_file_is_quantised(
    images: Sequence[Path], tmp_path: Path
) -> None:
    # Their sizes and places are values that shape inference needs, as in every YOLO of version 8 and later.
    random = np.random.default_rng(0)
    features = """
        maps = Conv(image, filters)
        left, right = Split<axis = 1>(maps, sizes)
        half = Slice(left, starts, ends, axes)
        features = Concat<axis = 1>(half, right)
    """
    weights: dict[str, ArrayLike] = {"filters": random.normal(size=(8, 3, 3, 3)), "classes": random.normal(size=(6, 4))}
    places = {"sizes": np.array([4, 4]), "starts": np.array([0]), "ends": np.array([2]), "axes": np.array([1])}
    source = write_graph(tmp_path / "split", features, 17, "height, width", **weights, **places)
    graph = source.folder / "model.onnx"
    ONNX.save(ONNX.load(graph), graph, save_as_external_data=True, location="model.onnx.data", size_threshold=99)
    quantize(source, images, next_version(source), max_changed=1)
    assert InProcessModel(source.folder).source.version == "2"


def test_graph_without_operators_for_int8_is_rejected(images: Sequence[Path], tmp_path: Path) -> None:
    source = graphs.source(graphs.parse(tmp_path / "model.onnx", GRAPH_WITHOUT_INT8))
    with pytest.raises(ModelError, match=r"cannot be quantised: it has none of Conv, Gemm, MatMul$"):
        quantize(source, images, next_version(source))


def test_graph_of_an_older_opset_is_rejected(images: Sequence[Path], tmp_path: Path) -> None:
    filters, classes = np.ones((8, 3, 3, 3)), np.eye(8, 4)
    source = write_graph(tmp_path / "old", "features = Conv(image, filters)", 12, filters=filters, classes=classes)
    with pytest.raises(ModelError, match=r"its opset is below 13: export it with opset 13 or later"):
        quantize(source, images, next_version(source))
    assert not next_version(source).exists()


@pytest.mark.slow
def test_int8_version_with_other_outputs_is_not_installed(images: Sequence[Path], tmp_path: Path) -> None:
    # The classes depend on channels that have less than one step of the scale of the first one.
    random = np.random.default_rng(0)
    filters, classes = 1e-6 * random.normal(size=(8, 3, 3, 3)), 1e6 * random.normal(size=(8, 4))
    filters[0], classes[0] = 1, 0
    source = write_graph(tmp_path / "wide", "features = Conv(image, filters)", 17, filters=filters, classes=classes)
    with pytest.raises(ModelError, match=r"int8 changes too many answers"):
        quantize(source, images, next_version(source))
    assert {path.name for path in source.folder.iterdir()} == {"model.onnx", SETTINGS_FILE}


@pytest.mark.slow
def test_too_many_changed_answers_are_named_and_nothing_is_written(images: Sequence[Path], tmp_path: Path) -> None:
    # Black images are a bad calibration: they have none of the values of a scene.
    black = tmp_path / "black.png"
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(black)
    source = copy_of(tmp_path, "detector")
    files = [*[black] * len(images), *images]
    message = r"too many answers: (\d+\.\d)% of \d+ objects in 50 images .* limit is 5.0%"
    with pytest.raises(ModelError, match=message) as error:
        quantize(source, files, next_version(source))
    assert not next_version(source).exists()
    (changed,) = re.findall(message, str(error.value))
    assert float(changed) > 5


@pytest.mark.slow
def test_images_in_which_nothing_is_found_judge_nothing(tmp_path: Path) -> None:
    plain = tmp_path / "plain.png"
    Image.fromarray(np.full((64, 64, 3), 90, np.uint8)).save(plain)
    source = copy_of(tmp_path, "detector")
    with pytest.raises(ModelError, match="finds nothing in 50 images, so int8 cannot be judged"):
        quantize(source, [plain] * 50, next_version(source))


@pytest.mark.slow
def test_undefined_numbers_in_few_places_are_accepted(tmp_path: Path) -> None:
    # The angle of a place without an object is the arctangent of 0/0 after rounding to int8.
    images = [tmp_path / f"{number}.png" for number in range(50)]
    for seed, image in enumerate(images):
        Image.fromarray(np.random.default_rng(seed).integers(0, 256, (192, 192, 3), np.uint8)).save(image)
    source = copy_of(tmp_path, "oriented-detector", parameters={"score_threshold": 0.001, "top_k": 2})
    verdict = quantize(source, images, next_version(source), max_changed=1).verdict
    assert verdict
    assert verdict.changed > 0.05


@pytest.mark.slow
def test_quantised_version_keeps_the_labels_of_a_file(images: Sequence[Path], tmp_path: Path) -> None:
    source = copy_of(tmp_path, "classifier", labels="names.txt")
    labels = [f"shape {number}" for number in range(20)]
    (source.folder / "names.txt").write_text("\n".join(labels))
    quantize(source, images, tmp_path / "quantised")
    assert list(InProcessModel(tmp_path / "quantised").description.labels) == labels


def test_next_version_is_above_all_others(tmp_path: Path) -> None:
    for name in ("1", "v3", "notes"):
        (tmp_path / name).mkdir()
    assert next_version(ModelSource(name="m", version="1", folder=tmp_path / "1", root=tmp_path)) == tmp_path / "4"


@pytest.mark.parametrize(
    ("name", "settings", "output", "reason"),
    [
        ("half_plus_two", {}, "out", "only a model that takes one image can be quantised"),
        ("classifier", {"precision": "int8"}, "out", "is quantised already"),
        (
            "classifier",
            {},
            "out",
            "Only 0 of 1 files are images that the model accepts. .* at least 50 images",
        ),
        ("classifier", {}, "missing/out", "there is no folder"),
    ],
)
def test_unsuitable_model_images_or_output_folder_is_rejected(
    tmp_path: Path, name: str, settings: dict[str, object], output: str, reason: str
) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=reason):
        quantize(copy_of(tmp_path, name, **settings), [tmp_path / "broken.jpg"], tmp_path / output)
    assert not (tmp_path / "out").exists()


def test_int8_for_a_graph_that_is_not_quantised_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="needs a quantised graph; make one with charioteer quantize"):
        InProcessModel(copy_of(tmp_path, "classifier", precision="int8").folder)
