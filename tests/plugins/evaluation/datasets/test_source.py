"""Labelled images of the sources of ``charioteer run``."""

import json
import tarfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.evaluation.datasets.files import DatasetOptions
from app.plugins.evaluation.datasets.read import read_dataset
from tests.support.data.datasets import write_image_folder

ROWS = [
    {"image": "cat/0.jpg", "label": "cat", "camera": "north"},
    {"image": "dog/0.jpg", "label": "dog", "camera": "x"},
]


def write_json_lines(folder: Path) -> str:
    path = folder / "list.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8-sig")
    return str(path)


def write_parquet(folder: Path) -> str:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(ROWS), folder / "list.parquet")
    return str(folder / "list.parquet")


def write_shard(folder: Path) -> str:
    path = folder / "shard.tar"
    with tarfile.open(path, "w") as shard:
        for label in ("cat", "dog"):
            (folder / f"{label}.cls").write_text(label)
            shard.add(folder / label / "0.jpg", f"{label}.jpg")
            shard.add(folder / f"{label}.cls", f"{label}.cls")
    return str(path)


SOURCES: Mapping[str, Callable[[Path], str]] = {
    "jsonl": write_json_lines,
    "parquet": write_parquet,
    "webdataset": write_shard,
    "glob": lambda folder: f"{folder}/*/*.jpg",
    "url": lambda folder: f"file://{folder}/",
}


@pytest.mark.parametrize("source", SOURCES)
def test_classes_come_from_columns_endings_or_folders(tmp_path: Path, source: str) -> None:
    dataset = read_dataset(SOURCES[source](write_image_folder(tmp_path, {"cat": 1, "dog": 1})))
    assert dataset.labels == ("cat", "dog")
    assert [(item.label, item.width) for item in dataset.items] == [("cat", 64), ("dog", 64)]
    assert all(item.image.read_bytes() for item in dataset.items)
    assert [item.metadata.get("camera") for item in dataset.items] == (
        ["north", "x"] if source in ("jsonl", "parquet") else [None, None]
    )


@pytest.mark.parametrize("option", ["split", "images"])
def test_option_that_the_format_does_not_use_is_rejected(tmp_path: Path, option: str) -> None:
    write_image_folder(tmp_path, {"cat": 1})
    options: Mapping[str, Any] = {option: tmp_path}
    with pytest.raises(EvaluationError, match=f"--{option}: no effect on image-folder; it is for "):
        read_dataset(tmp_path, DatasetOptions(**options))


def test_images_without_a_class_or_a_file_are_reported_together(tmp_path: Path) -> None:
    write_image_folder(tmp_path, {"cat": 1})
    rows = [
        {"image": str(tmp_path / "cat" / "0.jpg"), "label": "cat"},
        {"path": "gone.jpg", "label": "cat"},
        {"url": "a"},
        {"url": f"file://{tmp_path}/cat/0.jpg"},
    ]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(
        EvaluationError,
        match=r"3 labels or images cannot be used:\n.*gone.*\n.*a: Expected its class.*\n.*file://.*its class",
    ):
        read_dataset(tmp_path / "list.jsonl")
    assert len(read_dataset(tmp_path / "list.jsonl", DatasetOptions(skip_bad=True)).items) == 1


def test_image_of_a_tar_that_cannot_be_read_is_named_as_in_the_tar(tmp_path: Path) -> None:
    write_image_folder(tmp_path, {"cat": 1, "dog": 1})
    (tmp_path / "dog" / "0.jpg").write_bytes(b"nothing")
    with pytest.raises(EvaluationError, match=r"\n  shard\.tar/dog\.jpg: Expected an encoded image"):
        read_dataset(write_shard(tmp_path))
    (tmp_path / "cat" / "0.jpg").write_bytes(b"nothing")
    with pytest.raises(EvaluationError, match=r"as source, got none\n  Left out as unusable: shard\.tar/cat\.jpg: "):
        read_dataset(write_shard(tmp_path), DatasetOptions(skip_bad=True))
