"""Models of transformers become ONNX files that answer the same."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from app.assembly.discovery import discover
from app.assembly.export import export_model
from app.assembly.models import describe
from app.cli.export import export
from app.settings.model import ModelError
from tasks.task import TaskType
from tests.app.cli.test_commands import charioteer
from tests.support import tiny_language, tiny_vision
from tests.support.tiny import LABELS

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4

RESIZED = {"resnet": 0.02, "segformer": 0.1}
"""The served scores of these may differ by so much, for causes other than the graph: the processor of the first resizes
bicubically even what has the right size, and ONNX files have the scores of the second averaged before they are
enlarged."""


@pytest.mark.parametrize(
    ("made", "task_type", "any_size"),
    [
        (tiny_vision.vit, TaskType.IMAGE_CLASSIFICATION, False),
        (tiny_vision.resnet, TaskType.IMAGE_CLASSIFICATION, False),
        (tiny_vision.detr, TaskType.OBJECT_DETECTION, True),
        (tiny_vision.yolos, TaskType.OBJECT_DETECTION, True),
        (tiny_vision.rt_detr, TaskType.OBJECT_DETECTION, False),
        (tiny_vision.d_fine, TaskType.OBJECT_DETECTION, False),
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
    assert exported.scores < RESIZED.get(made.__name__, TOLERANCE)
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
    with pytest.raises(ModelError, match="zero-shot-image-classification cannot be exported"):
        export_model(folder, tmp_path / "onnx", 17, TOLERANCE)
    with pytest.raises(ModelError, match="own folder"):
        export_model(folder, folder, 17, TOLERANCE)


def test_settings_of_the_folder_do_not_follow_the_model(tmp_path: Path) -> None:
    """The export is exact, and served, whatever the folder declares of its weights."""
    folder = tiny_vision.vit(tmp_path / "model")
    own = {"runtime": "transformers", "uri": "model.safetensors", "transformers": {"dtype": "bfloat16"}}
    kept = {"labels": ["x", "y", "z"], "parameters": {"top_k": 2}}
    (folder / "model-settings.json").write_text(json.dumps({**own, **kept}))
    exported = export_model(folder, tmp_path / "onnx", 17, TOLERANCE)
    assert exported.largest < TOLERANCE
    assert exported.scores is not None
    assert exported.scores < TOLERANCE
    assert json.loads((tmp_path / "onnx" / "model-settings.json").read_text()) == kept
    (found,) = discover(tmp_path / "onnx")
    assert tuple(describe(found).labels) == ("x", "y", "z")


def test_one_version_is_exported_at_a_time(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / "model" / version).mkdir(parents=True)
        (tmp_path / "model" / version / "config.json").write_text("{}")
        (tmp_path / "model" / version / "model.safetensors").touch()
    with pytest.raises(ModelError, match="holds 2 versions; export the folder of one"):
        export_model(tmp_path / "model", tmp_path / "onnx", 17, TOLERANCE)


def test_exporting_names_what_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    folder = tiny_vision.vit(tmp_path / "model")
    with pytest.raises(ModelError, match=r"needs the extra torch, pip install 'charioteer\[torch\]' \(.*onnx"):
        export_model(folder, tmp_path / "onnx", 17, TOLERANCE)


def test_the_command_shows_the_differences(tmp_path: Path) -> None:
    folder = tiny_vision.vit(tmp_path / "model")
    done = charioteer("export", folder, "--output", tmp_path / "onnx", "--tolerance", "1e-4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "32x32" in done.stdout
    assert "differ by more than" not in done.stdout


def test_the_command_fails_when_they_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        export(tiny_vision.vit(tmp_path / "model"), output=tmp_path / "onnx", tolerance=0)
    assert caught.value.code == 1
    assert "They differ by more than 0" in capsys.readouterr().out
