"""What shapes mean."""

from pathlib import Path
from typing import Any

import pytest

from app.engine.description import Origin
from app.runtimes.onnxruntime.evidence import Evidence, Facts
from app.runtimes.onnxruntime.layout import decide_detection_layout, decide_task
from app.runtimes.onnxruntime.metadata import ExportMetadata
from app.runtimes.onnxruntime.neighbours import Config, Neighbours
from app.settings.model import ModelError, ModelSettings
from tasks.task import TaskType

CLASSIFY, DETECT = TaskType.IMAGE_CLASSIFICATION, TaskType.OBJECT_DETECTION
OBB, SEGMENT = TaskType.ORIENTED_OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION
MASKS = (1, 32, 160, 160)


def evidence(settings: ModelSettings | None = None, config: Config | None = None, **metadata: Any) -> Evidence:
    return Evidence(
        file=Path("model.onnx"),
        settings=settings or ModelSettings(),
        metadata=ExportMetadata(**metadata),
        neighbours=Neighbours(config=config),
    )


@pytest.mark.parametrize(
    ("task", "shapes", "classes", "metadata", "name", "counted"),
    [
        (DETECT, [(1, 84, 8400)], 80, {}, "raw", 80),
        (DETECT, [(1, 84, 8400)], None, {}, "raw", 80),
        (DETECT, [(1, 5, 8400)], 1, {}, "raw", 1),
        (DETECT, [(1, 6, 8400)], 2, {}, "raw", 2),
        (DETECT, [(1, 300, 6)], 80, {}, "nms", None),
        (DETECT, [(1, 300, 6)], None, {}, "nms", None),
        (DETECT, [(1, 300, 6)], 2, {}, "nms", None),
        (DETECT, [(1, 0, 6)], None, {}, "nms", None),
        (DETECT, [(1, 300, 6)], 80, {"end_to_end": True}, "end2end", None),
        (DETECT, [(1, 8400, 84)], 80, {}, "raw-transposed", 80),
        (DETECT, [(1, 8400, 6)], 2, {}, "raw-transposed", 2),
        (DETECT, [(1, 8400, 6)], 2, {"suppressed": True}, "nms", None),
        (OBB, [(1, 20, 8400)], 15, {}, "raw", 15),
        (OBB, [(1, 300, 7)], 15, {}, "nms", None),
        (OBB, [(1, 8400, 20)], 15, {}, "raw-transposed", 15),
        (SEGMENT, [(1, 116, 8400), MASKS], 80, {}, "raw", 80),
        (SEGMENT, [(1, 300, 38), MASKS], 80, {}, "nms", None),
        (SEGMENT, [(1, 300, 38), MASKS], 80, {"end_to_end": True}, "end2end", None),
        (SEGMENT, [(1, 8400, 116), MASKS], 80, {}, "raw-transposed", 80),
    ],
)
def test_layouts_are_told_from_shapes(
    task: TaskType,
    shapes: list[tuple[int, ...]],
    classes: int | None,
    metadata: dict[str, Any],
    name: str,
    counted: int,
) -> None:
    facts = Facts()
    layout = decide_detection_layout(shapes, task, classes, evidence(**metadata), facts)
    assert (layout.name, layout.classes) == (name, counted)
    assert layout.coefficients == (32 if task is SEGMENT else 0)
    assert [fact.origin for fact in facts.recorded] == [Origin.SHAPES]


@pytest.mark.parametrize(
    ("declared", "shape", "counted"),
    [
        ("raw-transposed", (1, 300, 6), 2),
        ("raw", (1, 6, 6), 2),
        ("nms", (1, 9000, 6), None),
        ("end2end", (1, 3, 6), None),
    ],
)
def test_a_declared_layout_wins(declared: str, shape: tuple[int, ...], counted: int | None) -> None:
    facts = Facts()
    layout = decide_detection_layout([shape], DETECT, None, evidence(ModelSettings(layout=declared)), facts)
    assert (layout.name, layout.classes) == (declared, counted)
    assert facts.recorded[0].origin is Origin.DECLARED


@pytest.mark.parametrize(
    ("task", "shapes", "classes", "declared", "reason"),
    [
        (DETECT, [(1, 84, 8400)], 3, None, "hold 80 classes, but 3 labels"),
        (DETECT, [(1, 85, 8400)], 80, None, "objectness"),
        (DETECT, [(1, 25200, 85)], None, None, 'declare "layout" and "labels"'),
        (DETECT, [(1, 4, 8400)], None, None, "no known layout"),
        (DETECT, [(1, 1000)], None, None, "takes outputs one"),
        (DETECT, [(1, 84, 8400)], 80, "logits", "known for this task are raw, raw-transposed, nms, end2end"),
        (DETECT, [(1, 84, 8400)], 80, "nms", "does not have"),
        (SEGMENT, [(1, 116, 8400)], 80, None, "IMAGE_SEGMENTATION takes outputs"),
    ],
)
def test_other_shapes_are_explained(
    task: TaskType, shapes: list[tuple[int, ...]], classes: int | None, declared: str | None, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        decide_detection_layout(shapes, task, classes, evidence(ModelSettings(layout=declared)), Facts())
    assert str(caught.value).startswith("model.onnx: ")


@pytest.mark.parametrize(
    ("known", "shapes", "classes", "task", "origin"),
    [
        (evidence(ModelSettings(task_type=SEGMENT), task="detect"), [(1, 84, 8400)], None, SEGMENT, Origin.DECLARED),
        (evidence(task="obb"), [(1, 84, 8400)], None, OBB, Origin.MODEL_FILE),
        (
            evidence(config=Config(architectures=("ResNetForImageClassification",))),
            [(1, 84, 8400)],
            None,
            CLASSIFY,
            Origin.CONFIG,
        ),
        (evidence(), [(1, 1000)], None, CLASSIFY, Origin.SHAPES),
        (evidence(), [(1, 116, 8400), MASKS], None, SEGMENT, Origin.SHAPES),
        (evidence(), [(1, 84, 8400)], 80, DETECT, Origin.SHAPES),
        (evidence(), [(1, 85, 8400)], 80, OBB, Origin.SHAPES),
        (evidence(), [(1, 300, 7)], 15, OBB, Origin.SHAPES),
        (evidence(), [(1, 300, 6)], 15, DETECT, Origin.SHAPES),
        (evidence(), [(1, 84, 8400)], None, DETECT, Origin.GUESSED),
    ],
)
def test_the_task_is_told_by_files_before_shapes(
    known: Evidence, shapes: list[tuple[int, ...]], classes: int | None, task: TaskType, origin: Origin
) -> None:
    facts = Facts()
    assert decide_task(shapes, classes, known, facts) is task
    assert [(fact.topic, fact.origin) for fact in facts.recorded] == [("task type", origin)]


@pytest.mark.parametrize(
    ("known", "shapes", "reason"),
    [
        (evidence(), [(1, 21, 128, 128)], r'\{"task_type": "OBJECT_DETECTION"\}'),
        (evidence(), [(1, 80), (1, 4)], "cannot be told"),
        (evidence(task="pose"), [(1, 56, 8400)], "'pose'; known are classify, detect, obb and segment"),
        (evidence(config=Config(architectures=("DetrForObjectDetection",))), [(1, 100, 92)], "DetrForObjectDetection"),
        (evidence(ModelSettings(task_type=TaskType.IMAGE_TEXT_TO_TEXT)), [(1, 2)], "more than one .onnx file"),
    ],
)
def test_a_task_that_is_not_known_is_explained(known: Evidence, shapes: list[tuple[int, ...]], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        decide_task(shapes, None, known, Facts())
