"""Parsing of model-settings.json."""

from pathlib import Path

import pytest

from app.core.plugins import registry
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSettings, read_settings
from tasks.task import TaskType


def settings(folder: Path, content: bytes) -> ModelSettings:
    (folder / SETTINGS_FILE).write_bytes(content)
    return read_settings(folder)


def test_missing_file_gives_defaults(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == registry().model_settings()


def test_fields_are_read(tmp_path: Path) -> None:
    content = (
        b'{"task_type": "OBJECT_DETECTION", "labels": ["a"], "preprocessing": {"size": [480, 640]}, "default":true}'
    )
    read = settings(tmp_path, content)
    assert (read.task_type, read.labels, read.default) == (TaskType.OBJECT_DETECTION, ("a",), True)
    assert read.preprocessing.size == (480, 640)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"nam": "x"}', "unknown field `nam`"),
        (b'{"preprocessing": {"mena": 1}}', "mena"),
        (b'{"task_type": "DETECT"}', "task_type: "),
        (b'{"labels": 1}', "labels: "),
        (b'{"labels": [1]}', r"labels\[0\]: "),
        (b'{"preprocessing": {"size": [0, 640]}}', r"preprocessing.size\[0\]: "),
        (b'{"preprocessing": {"size": [640]}}', "size: "),
        (b'{"preprocessing": {"fill": 256}}', "fill: "), (b'{"preprocessing": {"resize": "fit"}}', "resize: "),
        (b'{"preprocessing": {"mean": [0.5]}}', "mean: "), (b"[]", "Expected `object`"),
        (b'{"default": 1}', "default: "),
        (b'{"preprocessing": {"std": [1, 0, 1]}}', r"preprocessing\.std\[1\]"),
        (b"", "is not valid JSON"), (b"{", "is not valid JSON"), (b'{"name": "a",}', "is not valid JSON"),
        (b'{"name": "\xff"}', "is not valid JSON"),
    ],
)  # fmt: skip
def test_error_names_the_file_and_the_field(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        settings(tmp_path, content)
    assert str(tmp_path / SETTINGS_FILE) in str(raised.value)
