"""Export of transformers models to ONNX files that give the same answers."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from app.core.assembly.discovery import discover
from app.core.assembly.models import load
from app.core.settings.model import ModelError
from app.plugins.transformers.torch.command import export
from app.plugins.transformers.torch.export import export_model
from metadata.model import Origin
from tasks.task import TaskType
from tests.plugins.transformers.torch.asking import answers, boxes_of, image_input, mask_of, scene
from tests.support.command_line import charioteer
from tests.support.models import tiny_language, tiny_vision
from tests.support.models.tiny_models import LABELS

TOLERANCE = 1e-4


@pytest.mark.parametrize(
    ("make_model", "task_type", "any_size"),
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
@pytest.mark.verifies(
    "exports of ViT, ResNet, DETR, YOLOS, RT-DETR, D-FINE and SegFormer, compared with PyTorch",
    "classifiers",
    "detr",
    "detr-sigmoid",
    "segformer",
)
def test_exported_model_gives_the_same_answers(
    tmp_path: Path, make_model: Callable[[Path], Path], task_type: TaskType, any_size: bool
) -> None:
    folder = make_model(tmp_path / "model")
    exported = export_model(folder, tmp_path / "onnx", 17, TOLERANCE)
    assert exported.max_difference < TOLERANCE
    assert exported.any_size is any_size
    assert len({size for size, _ in exported.comparisons}) == (4 if any_size else 1)
    (original,), (source,) = discover(folder), discover(tmp_path / "onnx")
    served = load(source)
    metadata = served.description
    assert (metadata.platform, metadata.task_type, tuple(metadata.labels)) == ("onnx", task_type, LABELS)
    assert not [fact for fact in metadata.facts if fact.origin is Origin.GUESSED]
    # An image that has the size of the input is not resized.
    height, width = exported.comparisons[0][0]
    image = image_input(scene(width, height), score_threshold=0.0)
    (expected,), (found,) = answers(load(original), image), answers(served, image)
    assert {record.label for record in found} == {record.label for record in expected}
    if task_type is TaskType.OBJECT_DETECTION:
        # Almost equal scores may swap places, so compare each coordinate in its order.
        assert np.sort(boxes_of(found), axis=0) == pytest.approx(np.sort(boxes_of(expected), axis=0), abs=1e-2)
    elif task_type is TaskType.IMAGE_SEGMENTATION:
        # Two interpolations may differ by rounding at borders between classes.
        maps = [class_map(records, width, height) for records in (found, expected)]
        assert (maps[0] == maps[1]).mean() > 0.999


def class_map(records: Sequence[Any], width: int, height: int) -> NDArray[np.int64]:
    classes = np.full((height, width), -1)
    for record in records:
        classes[mask_of(record, width, height) > 0] = LABELS.index(record.label)
    return classes


def test_export_of_an_unsupported_model_is_rejected(tmp_path: Path) -> None:
    folder = tiny_language.clip(tmp_path / "model")
    with pytest.raises(ModelError, match="zero-shot-image-classification cannot be exported"):
        export_model(folder, tmp_path / "onnx", 17, TOLERANCE)
    with pytest.raises(ModelError, match="own folder"):
        export_model(folder, folder, 17, TOLERANCE)


def test_command_prints_the_differences_and_writes_settings(tmp_path: Path) -> None:
    """Copy labels and parameters, but not the settings about the weights, which do not apply to the export."""
    folder = tiny_vision.vit(tmp_path / "model")
    runtime_settings = {"runtime": "transformers", "uri": "model.safetensors", "transformers": {"dtype": "bfloat16"}}
    copied = {"labels": ["x", "y", "z"], "parameters": {"top_k": 2}}
    (folder / "model-settings.json").write_text(json.dumps({**runtime_settings, **copied}))
    completed = charioteer("export", folder, "--output", tmp_path / "onnx", "--tolerance", "1e-4")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "32x32" in completed.stdout
    assert "differ by more than" not in completed.stdout
    graph: Any = vars(onnx)["load"](str(tmp_path / "onnx" / "model.onnx"))
    assert [tensor.name for tensor in graph.graph.input] == ["pixel_values"]
    assert graph.opset_import[0].version == 17
    assert json.loads((tmp_path / "onnx" / "model-settings.json").read_text()) == copied
    (source,) = discover(tmp_path / "onnx")
    assert tuple(load(source).description.labels) == ("x", "y", "z")


def test_export_of_a_folder_with_two_versions_is_rejected(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / "model" / version).mkdir(parents=True)
        (tmp_path / "model" / version / "config.json").write_text("{}")
        (tmp_path / "model" / version / "model.safetensors").touch()
    with pytest.raises(ModelError, match="holds 2 versions; export the folder of one"):
        export_model(tmp_path / "model", tmp_path / "onnx", 17, TOLERANCE)


def test_export_names_the_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    folder = tiny_vision.vit(tmp_path / "model")
    with pytest.raises(ModelError, match=r"needs the extra torch, pip install 'charioteer\[torch\]' \(.*onnx"):
        export_model(folder, tmp_path / "onnx", 17, TOLERANCE)


def test_command_fails_when_answers_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        export(tiny_vision.vit(tmp_path / "model"), output=tmp_path / "onnx", tolerance=0)
    assert caught.value.code == 1
    assert "They differ by more than 0" in capsys.readouterr().out
