"""Test metadata that exporters write, and metadata that an attacker may write."""

from pathlib import Path

import pytest

from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata, read_metadata
from app.core.settings.model import ModelError

FILE = Path("model.onnx")


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        *(({"names": names}, ExportMetadata(names=("cat", "dog")))
          for names in ("['cat', 'dog']", "('cat', 'dog')", "{1: 'dog', 0: 'cat'}")),
        ({"imgsz": "640"}, ExportMetadata(size=(640, 640))),
        ({"imgsz": "[320, 640]", "stride": "32"}, ExportMetadata(size=(320, 640))),
        ({"description": "a YOLO", "task": "detect"}, ExportMetadata(description="a YOLO", task="detect")),
        ({"end2end": "True", "args": "{'nms': True}"}, ExportMetadata(end_to_end=True, suppressed=True)),
        *(({"kpt_shape": shape}, ExportMetadata(keypoints=(17, 3))) for shape in ("[17, 3]", "(17, 3)")),
        ({"character": "a\n'\n "}, ExportMetadata(characters="a\n'\n ")),
    ],
)  # fmt: skip
def test_literals_are_read(properties: dict[str, str], expected: ExportMetadata) -> None:
    assert read_metadata(FILE, properties) == expected


@pytest.mark.parametrize(
    "literal",
    [
        "__import__('os').system('touch /tmp/owned')", "open('/etc/passwd').read()", "[" * 100_000, "-" * 100_000 + "1",
        "1+" * 100_000 + "1", "[" * 5_000_000 + "]" * 5_000_000, "{0: 'a'", "{0: 'a', 2: 'c'}", "{'a': 'b'}",
        "{True: 'a', 'x': 1}", "['a', None]", "7", "[] * 9999999999", "{[]: 1}",
    ],
    ids=lambda literal: f"{literal[:12]}... {len(literal)}",
)  # fmt: skip
def test_hostile_names_are_unreadable_with_short_error(literal: str) -> None:
    metadata = read_metadata(FILE, {"names": literal})
    assert metadata.names is None
    assert metadata.unreadable["names"].startswith("model.onnx: metadata 'names'")
    assert len(metadata.unreadable["names"]) < 300


@pytest.mark.parametrize("literal", ["[640]", "[0, 640]", "'big'", "[640, -1]", "[1.5, 2]"])
def test_invalid_size_is_unreadable(literal: str) -> None:
    metadata = read_metadata(FILE, {"imgsz": literal})
    assert (metadata.size, "'imgsz' should be" in metadata.unreadable["imgsz"]) == (None, True)


@pytest.mark.parametrize("literal", ["[17]", "17", "[0, 3]", "[17, 1]", "['a', 3]", "{0: 1}"])
def test_invalid_keypoints_are_rejected(literal: str) -> None:
    with pytest.raises(ModelError, match="'kpt_shape' should be"):
        read_metadata(FILE, {"kpt_shape": literal})
