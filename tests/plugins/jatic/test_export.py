"""Export classifiers as JATIC_ONNX, and compare both models on noise, where every wrong pixel shows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from app.core.settings.model import ModelError
from app.core.settings.server import SettingsError
from app.plugins.in_process.model import InProcessModel
from app.plugins.jatic.export import export_jatic
from app.plugins.torch.command import export
from tasks.image_classification import Classification
from tests.core.runtimes.onnxruntime import graphs
from tests.support.models.jatic_models import write_classifier
from tests.support.models.model_folders import write_model
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
ONE_BYTE = 0.25 / 255 / 0.2 + 1e-3
"""The change of a sigmoid's value by one byte of a pixel, for a standard deviation of 0.2."""
SIZES = ((40, 60), (16, 16), (9, 31), (120, 50))


def write_served(folder: Path, shape: Sequence[int | str] = ("b", 3, 16, 16), **settings: Any) -> Path:
    """Write a classifier with settings; its scores are the sigmoids of single normalised pixels."""
    write_classifier(folder, shape=shape).metadata.unlink()
    settings = {"layout": "multi-label", **settings}
    settings["preprocessing"] = {"mean": 0.4, "std": 0.2, **settings.get("preprocessing", {})}
    (folder / "model-settings.json").write_text(json.dumps(settings))
    return folder


def scores(model: InProcessModel, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the scores in the order of the classes."""
    (found,) = model.predict([pixels])
    assert isinstance(found, Classification)
    assert found.class_ids is not None
    return found.scores[np.argsort(found.class_ids)]


def largest_difference(folder: Path, exported: Path) -> float:
    """Return the largest difference of a score on noise of several sizes."""
    served, model = InProcessModel(folder), InProcessModel(exported)
    assert model.description.layout == "jatic"
    noise = [np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8) for size in SIZES]
    return max(float(np.abs(scores(model, image) - scores(served, image)).max()) for image in noise)


RESIZES: dict[str, tuple[dict[str, Any], bool]] = {
    "contract": ({"resize": "stretch", "antialias": False}, False),
    "stretch": ({"resize": "stretch"}, True),
    "stretch, centre": ({"resize": "stretch", "crop_fraction": 0.8}, True),
    "crop": ({"resize": "crop", "crop_fraction": 0.875}, True),
    "crop, bicubic": ({"resize": "crop", "crop_fraction": 0.6, "interpolation": "bicubic"}, True),
    "crop, not antialiased": ({"resize": "crop", "antialias": False}, True),
    "BGR": ({"resize": "crop", "channel_order": "BGR", "mean": [0.4, 0.5, 0.3], "std": [0.2, 0.4, 0.3]}, True),
}


@pytest.mark.parametrize("name", RESIZES)
def test_exported_classifier_scores_as_the_served_one(tmp_path: Path, name: str) -> None:
    preprocessing, any_size = RESIZES[name]
    folder = write_served(tmp_path / "served", preprocessing=preprocessing)
    exported = export_jatic(folder, tmp_path / "exported")
    assert exported.any_size is any_size
    assert largest_difference(folder, exported.graph.parent) <= ONE_BYTE
    content = json.loads(exported.metadata.read_bytes())
    side = -1 if any_size else 16
    assert content["interface"] == {"name": "JATIC_ONNX", "version": "v1"}
    assert content["io"]["input"] == {"channels": "RGB", "height": side, "width": side}
    assert (content["io"]["batchSize"], content["io"]["output"]) == (-1, {"nClasses": 12})


@pytest.mark.parametrize("preprocessing", [{"resize": "crop"}, {"resize": "stretch", "antialias": False}])
def test_grey_classifier_is_exported_without_rounding(tmp_path: Path, preprocessing: dict[str, Any]) -> None:
    folder = write_served(tmp_path / "served", ("b", 1, 16, 16), preprocessing=preprocessing, labels=list("abcd"))
    exported = export_jatic(folder, tmp_path / "exported")
    assert largest_difference(folder, exported.graph.parent) <= 1e-4
    content = json.loads(exported.metadata.read_bytes())
    assert content["io"]["input"]["channels"] == "GRAYSCALE"
    assert content["index2label"] == {"0": "a", "1": "b", "2": "c", "3": "d"}


@pytest.mark.parametrize(
    ("options", "softmax"),
    [
        ({"datatype": TensorProto.UINT8}, True),
        ({"datatype": TensorProto.FLOAT16}, True),
        ({"shape": (2, 3, 8, 8)}, True),
        ({"output": "logits"}, False),
    ],
)
def test_every_input_datatype_and_score_form_is_exported(tmp_path: Path, options: Any, softmax: bool) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    graphs.channel_means(folder / "model.onnx", softmax=softmax, **options)
    exported = export_jatic(folder, tmp_path / "exported")
    # FP16 has three digits. Of UINT8, a byte of one pixel changes a logit by 1/64.
    assert largest_difference(folder, exported.graph.parent) <= 1e-2
    assert json.loads(exported.metadata.read_bytes())["io"]["batchSize"] == options.get("shape", (-1,))[0]


def test_channels_last_and_scores_as_maps_are_exported(tmp_path: Path) -> None:
    folder = tmp_path / "served"
    text = """(float[b, 8, 8, 3] images) => (float[b, 3, 1, 1] logits) {
        planes = Transpose<perm = [0, 3, 1, 2]>(images)
        logits = GlobalAveragePool(planes)
    }"""
    graphs.parse(folder / "model.onnx", text)
    exported = export_jatic(folder, tmp_path / "exported")
    assert largest_difference(folder, exported.graph.parent) <= 2e-3


def test_model_of_jatic_is_copied_with_the_labels_of_its_settings(tmp_path: Path) -> None:
    model = write_classifier(tmp_path / "model")
    first, second = tmp_path / "first", tmp_path / "second"
    copied = export_jatic(model.graph, first)
    assert copied.difference is None
    assert copied.graph.read_bytes() == model.graph.read_bytes()
    assert copied.metadata.read_bytes() == model.metadata.read_bytes()
    labels = [f"class {index}" for index in range(12)]
    (first / "model-settings.json").write_text(json.dumps({"labels": labels}))
    content = json.loads(export_jatic(first, second).metadata.read_bytes())
    assert list(content["index2label"].values()) == labels
    (first / "model-settings.json").write_text('{"preprocessing": {"antialias": true}}')
    with pytest.raises(ModelError, match=r"antialias in model-settings\.json break the contract"):
        export_jatic(first, tmp_path / "third")


@pytest.mark.parametrize(
    ("preprocessing", "reason"),
    [
        ({"resize": "letterbox"}, 'cannot express the resize "letterbox", which is neither "stretch" nor "crop"'),
        ({"resize": "crop", "interpolation": "lanczos"}, 'cannot express the filter "lanczos" with antialiasing'),
        ({"resize": "stretch", "interpolation": "bicubic", "antialias": False}, '"bicubic" without antialiasing'),
        ({"resize": "crop", "size": [8, 16]}, "a crop that is not square"),
    ],
)
def test_preprocessing_that_cannot_be_expressed_is_rejected(
    tmp_path: Path, preprocessing: dict[str, Any], reason: str
) -> None:
    folder = write_served(tmp_path / "served", ("b", 3, "h", "w"), preprocessing=preprocessing)
    with pytest.raises(ModelError) as refusal:
        export_jatic(folder, tmp_path / "exported")
    assert reason in str(refusal.value)
    assert not (tmp_path / "exported").exists()


def test_other_models_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="only classifiers can be exported, this is OBJECT_DETECTION"):
        export_jatic(MODELS / "detector", tmp_path / "exported")
    with pytest.raises(ModelError, match="is not an ONNX model; export it to ONNX first"):
        export_jatic(write_model(tmp_path / "python", "class Model: pass"), tmp_path / "exported")
    folder = write_served(tmp_path / "served", preprocessing={"resize": "crop"})
    with pytest.raises(ModelError, match="is the model's own folder"):
        export_jatic(folder / "model.onnx", folder)
    model = graphs.read_model(folder / "model.onnx")
    model.opset_import[0].version = 12
    graphs.write_model(model, folder / "model.onnx")
    with pytest.raises(ModelError, match="has an opset below 13; export it with opset 13 or later"):
        export_jatic(folder, tmp_path / "exported")


def test_command_prints_files_and_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(MODELS / "classifier", output=tmp_path, format="jatic")
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{tmp_path}/model-metadata.json; it takes images of any size, which its graph resizes." in printed
    assert "Scores differ by at most" in printed
    with pytest.raises(SystemExit):
        export(MODELS / "classifier", output=tmp_path, format="jatic", tolerance=1e-9)
    assert "more than --tolerance 1e-09" in capsys.readouterr().err
    with pytest.raises(SettingsError, match="--format: Expected one of onnx, jatic, got tflite"):
        export(MODELS / "classifier", output=tmp_path, format="tflite")
