"""Test that any graph outputs are either read or rejected."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.plugins import registry
from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata
from app.core.runtimes.onnxruntime.files.model_files import FolderMetadata, ModelFiles
from app.core.runtimes.onnxruntime.graph import ImageInputs, RawOutputs
from app.core.runtimes.onnxruntime.images.image_batch import fit
from app.core.runtimes.onnxruntime.images.preprocessing import Preprocessing
from app.core.runtimes.onnxruntime.layouts.choice import choose_layout
from app.core.runtimes.onnxruntime.layouts.layout import GraphOutput, GraphView, Match
from app.core.settings.model import ModelError, ModelSettings
from tasks.image_segmentation import SegmentationInput, SegmentationParameters
from tasks.inference.error import InferenceError
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.task import TaskType
from tasks.vision.image import Image

SIDE = 32
IMAGE = TensorSpec(name="images", datatype=Datatype.FP32, shape=(-1, 3, SIDE, SIDE))
SIZES = TensorSpec(name="orig_target_sizes", datatype=Datatype.INT64, shape=(-1, 2))
NAMES = ["output0", "output1", "logits", "pred_boxes", "dets", "labels", "boxes", "scores", "masks", "probs"]
SIDES = [0, 1, 2, 4, 5, 6, 7, 9, 84]
NUMBERS = (0.0, -1.0, 0.5, 1.0, 3.0, 1e9, -1e9, float("nan"), float("inf"))
Shapes = dict[str, tuple[int, ...]]

KNOWN_SHAPES: tuple[Shapes, ...] = (
    {"output0": (6, 84)},
    {"output0": (9, 6)},
    {"output0": (9, 7)},
    {"output0": (84, 7)},
    {"output0": (9, 6), "output1": (2, 4, 4)},
    {"output0": (9, 7), "output1": (1, 4, 4)},
    {"output0": (7, 84), "output1": (2, 4, 4)},
    {"logits": (9, 4), "pred_boxes": (9, 4)},
    {"dets": (9, 4), "labels": (9, 2)},
    {"dets": (9, 4), "labels": (9, 2), "masks": (9, 4, 4)},
    {"labels": (9,), "boxes": (9, 4), "scores": (9,)},
    {"logits": (4, 9, 9)},
    {"probs": (3,)},
    {"output0": (1, 9, 9)},
    {"out": (2, 9, 9), "aux": (2, 9, 9)},
    {"output0": (9, 9)},
)
"""Shapes of known layouts, without the batch dimension."""

RANDOM_SHAPES: st.SearchStrategy[Shapes] = st.dictionaries(
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(SIDES), max_size=3).map(lambda sides: tuple(sides)),
    min_size=1,
    max_size=3,
)


@st.composite
def outputs(draw: st.DrawFn) -> list[GraphOutput]:
    generated: list[GraphOutput] = []
    shapes: Shapes = draw(st.one_of(st.sampled_from(KNOWN_SHAPES), RANDOM_SHAPES))
    for name, shape in shapes.items():
        numbers = draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=9))
        values: NDArray[Any] = np.resize(np.array(numbers), (1, *shape))
        kind = draw(st.sampled_from(("f4", "f4", "f4", "u1", "i8")))
        blank = values.astype(kind) if kind == "f4" else np.nan_to_num(values, posinf=0).clip(0, 200).astype(kind)
        generated.append(GraphOutput(name=name, blank=blank))
    return generated


_EMPTY_BOXES = GraphOutput(name="boxes", blank=np.zeros((1, 0), np.float32))


@example([_EMPTY_BOXES, GraphOutput(name="masks", blank=np.zeros(1, np.float32))], None, None, None, "")
@given(
    graph_outputs=outputs(),
    task_type=st.sampled_from((None, *TaskType)),
    declared=st.sampled_from((None, None, *(name for layout in registry().layouts for name in layout.names))),
    classes=st.sampled_from((None, 1, 2, 3, 80)),
    model_type=st.sampled_from(("", "detr", "rt_detr", "unknown")),
)
def test_any_outputs_are_read_or_rejected(
    graph_outputs: list[GraphOutput],
    task_type: TaskType | None,
    declared: str | None,
    classes: int | None,
    model_type: str,
) -> None:
    labels = None if classes is None else tuple(f"class {number}" for number in range(classes))
    evidence = ModelFiles(
        file=Path("model.onnx"),
        settings=ModelSettings(layout=declared, labels=labels, task_type=task_type),
        metadata=ExportMetadata(),
        folder=FolderMetadata(model_type=model_type),
        declared_labels=labels,
    )
    inputs = ImageInputs(image=IMAGE, target_sizes=SIZES)
    view = GraphView(inputs=inputs, outputs=graph_outputs, model_files=evidence, classes=classes, size=(64, 64))
    try:
        found = choose_layout(view, [])
    except ModelError:
        return
    assert declared in (None, found.layout)
    assert task_type in (None, found.task_type)
    with contextlib.suppress(InferenceError), np.errstate(all="ignore"):
        check_finite(found)


def check_finite(found: Match) -> None:
    """Read the blank outputs as an answer, and check that all numbers are finite."""
    image = Image(np.zeros((20, 50, 3), np.uint8))
    options = Preprocessing(height=SIDE, width=SIDE, resize="letterbox", shorter_side=SIDE)
    placement = fit((image.height, image.width), (SIDE, SIDE), options)
    answer = RawOutputs([output.blank[0] for output in found.outputs], placement, SIDE, SIDE)
    match found.task_type:
        case TaskType.IMAGE_CLASSIFICATION:
            assert np.isfinite(found.decode(answer)).all()
        case TaskType.OBJECT_DETECTION | TaskType.ORIENTED_OBJECT_DETECTION:
            candidates = found.decode(answer, DetectionInput(image, DetectionParameters()))
            width = 5 if found.task_type is TaskType.ORIENTED_OBJECT_DETECTION else 4
            assert candidates.boxes.shape == (len(candidates.scores), width)
            assert np.isfinite(candidates.boxes).all()
            assert np.isfinite(candidates.scores).all()
        case TaskType.IMAGE_SEGMENTATION:
            segments = found.decode(answer, SegmentationInput(image, SegmentationParameters()))
            assert len(segments.class_ids) == len(segments.scores) == len(segments.contours)
            assert np.isfinite(segments.scores).all()
        case TaskType.IMAGE_TEXT_TO_TEXT:
            assert isinstance(found.decode(answer), str)
        case _:
            assert not found.unbatched
