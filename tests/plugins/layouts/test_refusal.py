"""Test what errors about unknown outputs advise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.plugins import registry
from app.core.settings.model import ModelError
from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import inspected

DETECT, SEGMENT, TENSOR = TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION, TaskType.TENSOR
CLASSIFY, READ = TaskType.IMAGE_CLASSIFICATION, TaskType.IMAGE_TEXT_TO_TEXT
SQUARE, LINE = (1, 3, 320, 320), (1, 3, 48, "width")
ISNET = {
    **{f"d{stage}": (1, 1, 320, 320) for stage in range(1, 7)},
    **{f"hx{stage}d": (1, 9, 320 >> stage, 320 >> stage) for stage in range(6)},
}


def rejection(folder: Path, outputs: dict[str, tuple[int, ...]], shape: Sequence[Any], **settings: Any) -> str:
    arrays: dict[str, NDArray[np.float32]] = {name: np.zeros(sides, np.float32) for name, sides in outputs.items()}
    file = graphs.constant(folder / "model.onnx", arrays, shape=shape)
    with pytest.raises(ModelError) as caught:
        inspected(graphs.source(file, **settings))
    return str(caught.value)


@pytest.mark.parametrize(
    ("outputs", "shape", "task"),
    [
        ({"output": (1, 1, 320, 320)}, SQUARE, SEGMENT),
        (ISNET, SQUARE, SEGMENT),
        ({"embedding": (1, 512)}, SQUARE, TENSOR),
        ({"image_embeds": (1, 512), "last_hidden_state": (1, 197, 768)}, SQUARE, TENSOR),
        ({"last_hidden_state": (1, 401, 64)}, SQUARE, TENSOR),
        ({"last_hidden_state": (1, 197, 768)}, SQUARE, TENSOR),
        ({"output": (1, 160, 320)}, (1, 3, 160, 320), TENSOR),
        ({"output": (1, 77, 512)}, SQUARE, TENSOR),
        ({"output": (1, 77, 1280)}, SQUARE, TENSOR),
        ({"predicted_depth": (1, 160, 320)}, ("batch", 3, "height", "width"), TENSOR),
        ({"depth": (1, 1, 320, 320)}, SQUARE, TENSOR),
        ({"output": (1, 256, 256)}, SQUARE, TENSOR),
        ({"output": (1, 3, 640, 640)}, SQUARE, TENSOR),
        ({"output": (1, 512, 10, 10)}, SQUARE, TENSOR),
        ({"output": (1, 40, 97)}, LINE, READ),
        ({"output": (1, 400, 20)}, LINE, READ),
        ({"output": (1, 18, 68)}, (1, 3, 24, 94), READ),
        ({"boxes": (1, 895, 16), "scores": (1, 895, 1)}, SQUARE, DETECT),
        ({"boxes": (1, 900, 4), "scores": (1, 900, 80)}, SQUARE, DETECT),
        ({"heatmap": (1, 17, 80, 80)}, SQUARE, TENSOR),
        ({"hm": (1, 80, 80, 80), "wh": (1, 2, 80, 80), "reg": (1, 2, 80, 80)}, SQUARE, TENSOR),
        ({"depth": (1, 1, 320, 320), "focallength_px": (1, 1)}, SQUARE, TENSOR),
        ({"landmarks": (1, 136), "pose": (1, 3)}, SQUARE, TENSOR),
        ({"output": (5, 7)}, SQUARE, DETECT),
    ],
)
def test_rejection_without_task_names_the_likely_one(
    tmp_path: Path, outputs: dict[str, tuple[int, ...]], shape: Sequence[Any], task: TaskType
) -> None:
    message = rejection(tmp_path, outputs, shape)
    _, advice = message.split("its task cannot be determined", 1)
    first = advice.split("probably ", 1)[1].split(", or ", 1)[0]
    assert ('{"layout": "ctc"}' if task is READ else f'{{"task_type": "{task}"}}') in first
    assert ("OBJECT_DETECTION" in advice) is (task is DETECT)
    assert '{"task_type": "TENSOR"}' in advice
    assert (f"`charioteer init NAME --from onnx --task {task} --file " in advice) is (task not in (TENSOR, READ))
    assert "docs/python_models.md#other-outputs" in advice


@pytest.mark.parametrize(
    ("outputs", "task"),
    [
        ({"output": (1, 7)}, CLASSIFY),
        ({"output": (1, 136)}, CLASSIFY),
        ({f"head{number}": (1, number + 2) for number in range(5)}, CLASSIFY),
        ({"output": (1, 17, 80, 80)}, SEGMENT),
        ({"output": (1, 1, 80, 80)}, SEGMENT),
        ({"a": (1, 80, 80, 80), "b": (1, 2, 80, 80)}, SEGMENT),
    ],
)
def test_rejection_of_shapes_with_several_meanings_asks(
    tmp_path: Path, outputs: dict[str, tuple[int, ...]], task: TaskType
) -> None:
    message = rejection(tmp_path, outputs, SQUARE)
    assert "probably" not in message
    assert f'in model-settings.json: {{"task_type": "{task}"}}' in message
    assert '{"task_type": "TENSOR"}' in message
    assert "`charioteer init NAME --from onnx --task TASK --file " in message
    assert ('{"outputs": ["NAME"]}' in message) is (len(outputs) > 1)


def test_rejection_of_isnet_names_its_mask(tmp_path: Path) -> None:
    message = rejection(tmp_path, ISNET, SQUARE)
    assert "and 4 more" in message
    assert '{"outputs": ["d1"]}' in message, "not a map of features, although that has more values"


def test_rejection_of_several_outputs_names_outputs_before_layouts(tmp_path: Path) -> None:
    outputs = {"low": (1, 5, 80, 80), "high": (1, 5, 160, 160), "features": (1, 64)}
    message = rejection(tmp_path, outputs, SQUARE, task_type=SEGMENT)
    assert '{"outputs": ["high"]}' in message
    assert message.index('"outputs"') < message.index("similar layouts") < message.index('"layout"')


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"a": (1, 5, 7, 9)}, ("raw and raw-transposed and nms and end2end", "yolov5", "yolox")),
        ({"a": (1, 9, 4), "b": (1, 9, 0)}, ("rf-detr", "detr", "detr-sigmoid")),
        ({"a": (9, 4), "b": (9,), "c": (8,)}, ("torchvision",)),
    ],
)
def test_rejection_of_a_task_lists_three_layouts_with_similar_outputs(
    tmp_path: Path, shape: dict[str, tuple[int, ...]], expected: tuple[str, ...]
) -> None:
    message = rejection(tmp_path, shape, SQUARE, task_type=DETECT)
    listed = message.split("similar layouts of OBJECT_DETECTION are ", 1)[1].split("; if it has one", 1)[0].split("; ")
    assert len(listed) == 3
    assert all(text.startswith(name) for text, name in zip(listed, expected, strict=False))


def test_rejection_of_a_declared_task_names_the_likely_other_one(tmp_path: Path) -> None:
    message = rejection(tmp_path, {"alpha": (1, 1, 320, 320)}, SQUARE, task_type=DETECT)
    assert 'they look like those of IMAGE_SEGMENTATION: declare {"task_type": "IMAGE_SEGMENTATION"}' in message


def test_rejection_of_a_declared_layout_says_what_it_expects(tmp_path: Path) -> None:
    message = rejection(tmp_path, {"a": (1, 9), "b": (1, 5)}, SQUARE, layout="logits")
    assert "model-settings.json declares the layout 'logits', which its outputs a [1, 9] and b [1, 5] do not" in message
    assert '{"outputs": ["a"]}' in message
    assert message.endswith("that layout has [b, nc]")


def test_ranks_of_layouts_are_those_of_their_outputs() -> None:
    assert all(layout.ranks for layout in registry().layouts)
