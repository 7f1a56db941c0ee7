"""Quantisation writes a new version whose answers stay close, with its origin."""

import hashlib
import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from app.assembly.discovery import model_at
from app.assembly.in_process import InProcessModel
from app.assembly.quantization import next_version, quantize
from app.settings.model import SETTINGS_FILE, ModelError, ModelSource
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
IMAGES = sorted((ROOT / "fixtures" / "images").glob("*.jpg"))


def copy_of(folder: Path, model: str, **settings: object) -> ModelSource:
    copy = shutil.copytree(MODELS / model, folder / model)
    (copy / SETTINGS_FILE).write_text(json.dumps(settings))
    (source,) = model_at(copy)
    return source


def facts(folder: Path) -> dict[str, str]:
    return {fact.topic: fact.value for fact in InProcessModel(folder).description.facts}


def test_quantised_version_is_served_with_close_answers_and_the_same_settings(tmp_path: Path) -> None:
    source = copy_of(tmp_path, "detector", parameters={"score_threshold": 0.4}, name="shapes")
    exact = InProcessModel(source.folder)
    not_an_image = tmp_path / "broken.jpg"
    not_an_image.write_bytes(b"nothing")
    steps: list[int] = []
    folder = next_version(source)
    provenance = quantize(source, [not_an_image, *IMAGES], folder, steps.append)
    assert folder == source.folder / "2"
    assert steps == [1] * (len(IMAGES) + 1)
    assert provenance.images == len(IMAGES)
    assert provenance.source_sha256 == hashlib.sha256((MODELS / "detector" / "model.onnx").read_bytes()).hexdigest()
    quantised = InProcessModel(source.folder)
    assert (quantised.source.name, quantised.source.version) == ("shapes", "2")
    assert quantised.source.settings == msgspec.structs.replace(source.settings, precision="int8")
    assert facts(source.folder)["precision"].startswith(
        f"int8, made of version 1 with {len(IMAGES)} images by onnxruntime "
    )
    scene = np.asarray(Image.open(ROOT / "fixtures" / "images" / "scene.jpg"))
    expected, found = (msgspec.to_builtins(model.ask(scene)) for model in (exact, quantised))
    assert [record["label"] for record in found] == [record["label"] for record in expected]
    for record, exact_record in zip(found, expected, strict=True):
        for name in ("xmin", "ymin", "xmax", "ymax"):
            assert record[name] == pytest.approx(exact_record[name], abs=8)
        assert record["score"] == pytest.approx(exact_record["score"], abs=0.1)
    with pytest.raises(ModelError, match="is quantised already"):
        quantize(quantised.source, IMAGES, tmp_path / "again")
    with pytest.raises(ModelError, match="exists already"):
        quantize(source, IMAGES, folder)
    assert [path.name for path in source.folder.iterdir() if path.name.startswith(".")] == []


def test_quantised_version_keeps_the_labels_of_a_file(tmp_path: Path) -> None:
    source = copy_of(tmp_path, "classifier", labels="names.txt")
    labels = [f"shape {number}" for number in range(20)]
    (source.folder / "names.txt").write_text("\n".join(labels))
    quantize(source, IMAGES, tmp_path / "quantised")
    assert list(InProcessModel(tmp_path / "quantised").description.labels) == labels


def test_next_version_is_above_all_others(tmp_path: Path) -> None:
    for name in ("1", "v3", "notes"):
        (tmp_path / name).mkdir()
    assert next_version(ModelSource(name="m", version="1", folder=tmp_path / "1", root=tmp_path)) == tmp_path / "4"


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("half_plus_two", {}, "only a model that takes one image can be quantised"),
        ("classifier", {"precision": "int8"}, "is quantised already"),
    ],
)
def test_unsuitable_models_are_rejected(tmp_path: Path, name: str, settings: dict[str, object], reason: str) -> None:
    source = copy_of(tmp_path, name, **settings)
    with pytest.raises(ModelError, match=reason):
        quantize(source, IMAGES, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_calibration_without_images_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="No file of the calibration data is an image"):
        quantize(copy_of(tmp_path, "classifier"), [tmp_path / "broken.jpg"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_output_in_a_missing_folder_is_rejected_first(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no folder"):
        quantize(copy_of(tmp_path, "classifier"), [], tmp_path / "missing" / "out")


def test_int8_for_a_graph_that_is_not_quantised_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="needs a quantised graph; make one with charioteer quantize"):
        InProcessModel(copy_of(tmp_path, "classifier", precision="int8").folder)
