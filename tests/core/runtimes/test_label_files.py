"""Test label files: as common tools write them, declared or found beside a model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.runtimes.label_files import find_label_file, read_label_file
from app.core.runtimes.onnxruntime.files.metadata import read_metadata
from app.core.settings.model import ModelError, ModelSettings, ModelSource
from metadata.model import Fact, Origin
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import inspected
from tests.support.models.model_folders import write_and_load

NAMES = ("red", "green light", "blue")
FILES: Mapping[str, str] = {
    "labels.txt": "red\ngreen light\nblue\n",
    "classes.txt": "red\r\ngreen light\r\nblue\r\n\r\n",
    "coco.names": "\ufeffred\ngreen light\nblue",
    "numbered.txt": "0 red\n1  green light\n2 blue\n",
    "labels.json": '["red", "green light", "blue"]',
    "id2label.json": '{"0": "red", "1": "green light", "2": "blue"}',
    "label2id.json": '{"red": 0, "blue": 2, "green light": 1}',
    "config.json": '{"id2label": {"0": "red", "1": "green light", "2": "blue"}}',
    "index_to_name.json": '{"0": ["n01", "red"], "1": ["n02", "green light"], "2": ["n03", "blue"]}',
    "data.yaml": "train: images\nnc: 3\nnames: [red, green light, blue]\n",
    "coco.yaml": "path: ../coco\nnames:\n  0: red\n  1: green light\n  2: blue\n",
}


USUAL = {"task_type": "IMAGE_CLASSIFICATION", "preprocessing": {"resize": "crop", "scale": 1, "mean": 0, "std": 1}}


def source(folder: Path, **settings: Any) -> ModelSource:
    return ModelSource(name="m", version="1", folder=folder, settings=ModelSettings(**settings))


def classifier(folder: Path, **metadata: str) -> Path:
    shape = ("batch", 3, *(("height", "width") if "imgsz" in metadata else (8, 8)))
    return graphs.channel_means(folder / "model.onnx", softmax=True, shape=shape, properties=metadata)


def label_fact(file: Path, **settings: Any) -> Fact:
    found = inspected(graphs.source(file, **settings)).description
    (fact,) = (fact for fact in found.facts if fact.topic == "labels")
    assert found.labels in (NAMES, ("0", "1", "2"))
    return fact


@pytest.mark.parametrize("name", FILES)
def test_file_of_common_tool_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name].encode())
    assert read_label_file(tmp_path / name, source(tmp_path)) == NAMES


def test_file_can_be_declared(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "coco.names").write_text(FILES["coco.names"])
    expected = Fact("labels", "3: red, green light, blue (coco.names)", Origin.DECLARED)
    assert label_fact(classifier(tmp_path), labels="lists/coco.names") == expected


@pytest.mark.parametrize(
    "name",
    [name for name in FILES if name not in {"numbered.txt", "label2id.json", "index_to_name.json", "config.json"}],
)
def test_file_beside_model_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name].encode())
    expected = Fact("labels", f"3: red, green light, blue ({name})", Origin.LABEL_FILE)
    assert label_fact(classifier(tmp_path)) == expected


def test_metadata_and_config_precede_found_file(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    file = classifier(tmp_path, names=str(list(NAMES)))
    assert label_fact(file).origin is Origin.MODEL_FILE
    config = {"id2label": dict(enumerate(NAMES))}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert label_fact(classifier(tmp_path)).origin is Origin.CONFIG


@pytest.mark.parametrize(
    ("files", "properties", "settings"),
    [
        ({}, {"names": "red,green,blue", "args": "--all"}, {"labels": NAMES}),
        ({}, {"imgsz": "8 by 8"}, {"labels": NAMES, "preprocessing": {"size": [8, 8]}}),
        ({"labels.txt": "\n"}, {"names": str(NAMES)}, {}),
        ({"config.json": '{"image_size": "224"}', "labels.txt": "\n"}, {"names": str(NAMES)}, USUAL),
        ({"config.json": json.dumps({"id2label": dict(enumerate(NAMES))}), "labels.txt": "\n"}, {}, {}),
    ],
)
def test_unreadable_source_does_not_stop_a_higher_one(
    tmp_path: Path, files: Mapping[str, str], properties: Mapping[str, str], settings: Mapping[str, Any]
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    file = classifier(tmp_path, **properties)
    assert inspected(graphs.source(file, **settings)).description.labels == NAMES


@pytest.mark.parametrize(
    ("properties", "config", "message"),
    [
        ({"names": "red,green,blue"}, "{}", 'declare "labels" in model-settings.json'),
        ({"names": "['red'", "task": "classify"}, "{}", "is not a Python literal"),
        ({"imgsz": "8 by 8"}, "{}", r'"preprocessing": {"size": \[height, width\]} in model-settings.json'),
        ({"names": str(NAMES)}, '{"image_size": "224"}', "config.json: image_size"),
    ],
)
def test_unreadable_source_that_nothing_replaces_is_named(
    tmp_path: Path, properties: dict[str, str], config: str, message: str
) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelError, match=message):
        inspected(graphs.source(classifier(tmp_path, **properties)))


def test_file_precedes_placeholders_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text(FILES["labels.txt"])
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {str(n): f"LABEL_{n}" for n in range(3)}}))
    assert label_fact(classifier(tmp_path)).origin is Origin.LABEL_FILE


def test_characters_in_metadata_name_classes_of_classifier(tmp_path: Path) -> None:
    file = classifier(tmp_path, character="red\ngreen light\nblue")
    assert label_fact(file) == Fact("labels", "3: red, green light, blue", Origin.MODEL_FILE)
    assert read_metadata(file, {"character": "red"}).names is None


def test_several_name_files_are_ambiguous(tmp_path: Path) -> None:
    for name in ("coco.names", "obj.names"):
        (tmp_path / name).write_text("a\n")
    assert find_label_file(source(tmp_path), tmp_path) is None


def test_python_model_takes_label_file(tmp_path: Path) -> None:
    code = "class Model:\n    def predict(self, image):\n        return [0.1, 0.7, 0.2]\n"
    (tmp_path / "labels.txt").write_text(FILES["labels.txt"])
    model = write_and_load(tmp_path, code, task_type="IMAGE_CLASSIFICATION", labels="labels.txt")
    records = msgspec.to_builtins(model.ask(np.zeros((4, 4, 3), np.uint8)))
    assert [record["label"] for record in records] == ["green light", "blue", "red"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("missing.txt", None, "cannot be read: No such file"),
        ("labels.txt", "", "expected a class name for each"),
        ("data.yaml", "train: images\n", "expected a class name for each"),
        ("data.yaml", "names: [", "cannot be read: while parsing"),
        ("data.yaml", "cat dog", "expected a class name for each"),
        ("labels.json", "{", "cannot be read"),
        ("labels.json", '{"1": "a", "2": "b"}', "expected a class name for each"),
        ("labels.json", '{"0": {"name": "a"}, "1": "b", "2": null}', "expected a class name for each"),
        ("labels.txt", b"\xff\xfe", "cannot be read"),
        ("../outside.txt", "a\n", "outside"),
        ("labels.txt", "a\nb\n", "its output has 3 classes, but labels.txt lists 2 labels"),
    ],
)
def test_unusable_file_is_rejected_with_its_name(
    tmp_path: Path, name: str, content: str | bytes | None, reason: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    if content is not None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelError, match=reason) as caught:
        inspected(graphs.source(classifier(folder), labels=name))
    assert Path(name).name in str(caught.value)
