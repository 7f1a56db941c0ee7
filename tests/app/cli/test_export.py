"""Models of transformers become ONNX files that answer the same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from app.assembly.discovery import discover
from app.assembly.export import export_model
from app.assembly.models import describe
from app.settings.model import ModelError
from tasks.task import TaskType
from tests.app.cli.test_commands import charioteer
from tests.app.runtimes.transformers import tiny_language, tiny_vision
from tests.app.runtimes.transformers.tiny import LABELS

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4


@pytest.mark.parametrize(
    ("made", "task_type", "any_size"),
    [
        (tiny_vision.vit, TaskType.IMAGE_CLASSIFICATION, False),
        (tiny_vision.detr, TaskType.OBJECT_DETECTION, True),
        (tiny_vision.rt_detr, TaskType.OBJECT_DETECTION, False),
        (tiny_vision.segformer, TaskType.IMAGE_SEGMENTATION, False),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_an_export_answers_what_the_model_answers(
    tmp_path: Path, made: Callable[[Path], Path], task_type: TaskType, any_size: bool
) -> None:
    folder = made(tmp_path / "model")
    exported = export_model(folder, tmp_path / "onnx", 17, TOLERANCE)
    assert exported.largest < TOLERANCE
    assert exported.any_size is any_size
    assert len({each.size for each in exported.compared}) == (4 if any_size else 1)
    assert exported.scores is not None
    if task_type is not TaskType.IMAGE_SEGMENTATION:
        # Random weights score queries so much alike that a bit decides which of them are answered.
        assert exported.scores < 1e-2
    (found,) = discover(tmp_path / "onnx")
    about = describe(found)
    assert (about.platform, about.task_type, tuple(about.labels)) == ("onnx", task_type, LABELS)


def test_the_file_says_what_it_was_made_of(tmp_path: Path) -> None:
    exported = export_model(tiny_vision.vit(tmp_path / "model"), tmp_path / "onnx", 17, TOLERANCE)
    graph: Any = vars(onnx)["load"](str(exported.file))
    told = {each.key: each.value for each in graph.metadata_props}
    assert told["architecture"] == "ViTForImageClassification"
    assert json.loads(told["labels"]) == list(LABELS)
    assert [each.name for each in graph.graph.input] == ["pixel_values"]
    assert graph.opset_import[0].version == 17


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    folder = tiny_language.clip(tmp_path / "model")
    with pytest.raises(ModelError, match="zero-shot-image-classification is not exported"):
        export_model(folder, tmp_path / "onnx", 17, TOLERANCE)
    with pytest.raises(ModelError, match="own folder"):
        export_model(folder, folder, 17, TOLERANCE)


@pytest.mark.parametrize(("tolerance", "code"), [("1e-4", 0), ("0", 1)])
def test_the_command_fails_when_they_differ(tmp_path: Path, tolerance: str, code: int) -> None:
    folder = tiny_vision.vit(tmp_path / "model")
    done = charioteer("export", folder, "--output", tmp_path / "onnx", "--tolerance", tolerance)
    assert done.returncode == code, done.stdout + done.stderr
    assert "32x32" in done.stdout
    assert ("differ by more than" in done.stdout) is bool(code)
