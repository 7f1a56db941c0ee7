"""Metadata as exporters write it, and as an attacker would."""

from pathlib import Path

import pytest

from app.runtimes.onnxruntime.metadata import ExportMetadata, read_metadata
from app.settings.model import ModelError

FILE = Path("model.onnx")


def test_everything_an_ultralytics_file_says() -> None:
    properties = {
        "description": "Ultralytics YOLO",
        "task": "detect",
        "names": "{0: 'person', 1: 'car'}",
        "imgsz": "[320, 640]",
        "stride": "32",
        "end2end": "True",
        "args": "{'nms': True, 'dynamic': False}",
    }
    assert read_metadata(FILE, properties) == ExportMetadata(
        task="detect", names=("person", "car"), size=(320, 640), suppressed=True, end_to_end=True
    )


def test_all_of_it_is_optional() -> None:
    assert read_metadata(FILE, {}) == ExportMetadata()


@pytest.mark.parametrize("names", ["['cat', 'dog']", "('cat', 'dog')", "{1: 'dog', 0: 'cat'}"])
def test_names_come_in_the_order_of_their_numbers(names: str) -> None:
    assert read_metadata(FILE, {"names": names}).names == ("cat", "dog")


def test_one_side_means_a_square() -> None:
    assert read_metadata(FILE, {"imgsz": "640"}).size == (640, 640)


@pytest.mark.parametrize(
    "literal",
    [
        "__import__('os').system('touch /tmp/owned')",
        "open('/etc/passwd').read()",
        "[" * 100_000,
        "-" * 100_000 + "1",
        "1+" * 100_000 + "1",
        "[" * 5_000_000 + "]" * 5_000_000,
        "{0: 'a'",
        "{0: 'a', 2: 'c'}",
        "{'a': 'b'}",
        "{True: 'a', 'x': 1}",
        "7",
        "[] * 9999999999",
        "{[]: 1}",
    ],
    ids=lambda literal: f"{literal[:12]}... {len(literal)}",
)
def test_hostile_names_are_refused_in_one_sentence(literal: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_metadata(FILE, {"names": literal})
    assert str(caught.value).startswith("model.onnx: metadata 'names'")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("literal", ["[640]", "[0, 640]", "'big'", "[640, -1]", "[1.5, 2]"])
def test_a_size_that_is_none_is_refused(literal: str) -> None:
    with pytest.raises(ModelError, match="'imgsz'"):
        read_metadata(FILE, {"imgsz": literal})
