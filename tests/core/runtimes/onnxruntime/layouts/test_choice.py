"""Test which layout is chosen from shapes, names and files, and which ambiguities are rejected."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.plugins import registry
from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata
from app.core.runtimes.onnxruntime.files.model_files import ModelFiles
from app.core.runtimes.onnxruntime.graph import ImageInputs
from app.core.runtimes.onnxruntime.layouts.choice import choose_layout
from app.core.runtimes.onnxruntime.layouts.layout import GraphOutput, GraphView, Match
from app.core.settings.model import ModelError, ModelSettings
from app.plugins.transformers.hugging_face.beside_graph import describe
from app.plugins.transformers.hugging_face.files import Config, TimmPreprocessing
from metadata.model import Fact, Origin
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import TaskType

CLASSIFY, DETECT = TaskType.IMAGE_CLASSIFICATION, TaskType.OBJECT_DETECTION
OBB, SEGMENT = TaskType.ORIENTED_OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION
READ, EMBED = TaskType.IMAGE_TEXT_TO_TEXT, TaskType.TENSOR
MASKS = (1, 32, 40, 40)
STRIDES = (8, 16, 32)
IMAGE = TensorSpec(name="images", datatype=Datatype.FP32, shape=(-1, 3, 64, 64))
DECLARED, FILE, CONFIG, BY_SHAPE, GUESS = (
    Origin.DECLARED, Origin.MODEL_FILE, Origin.CONFIG, Origin.SHAPES, Origin.GUESSED
)  # fmt: skip
Shapes = list[tuple[int, ...]] | dict[str, tuple[int, ...]]
RF_DETR_MASKS: Shapes = {"dets": (1, 9, 4), "labels": (1, 9, 3), "masks": (1, 9, 8, 8)}
BOXES: Shapes = {"logits": (1, 100, 92), "pred_boxes": (1, 100, 4)}


def evidence(settings: ModelSettings | None = None, config: Config | None = None, **metadata: Any) -> ModelFiles:
    labels = settings.labels if settings else None
    return ModelFiles(
        file=Path("model.onnx"),
        settings=settings or ModelSettings(),
        metadata=ExportMetadata(**metadata),
        folder=describe(config or Config()),
        declared_labels=labels if isinstance(labels, tuple) else None,
    )


def view(shapes: Shapes, known: ModelFiles, classes: int | None = None, inputs: ImageInputs | None = None) -> GraphView:
    """Return a graph whose outputs are zeros; outputs whose names end in ``_ids`` hold integers."""
    named = shapes if isinstance(shapes, dict) else {f"output{index}": shape for index, shape in enumerate(shapes)}
    return GraphView(
        inputs=inputs or ImageInputs(image=IMAGE),
        outputs=[
            GraphOutput(name=name.removesuffix("_ids"), blank=np.zeros(shape, "i8" if name.endswith("_ids") else "f4"))
            for name, shape in named.items()
        ],
        model_files=known,
        classes=classes,
        size=(64, 64),
    )


def chosen(shapes: Shapes, known: ModelFiles, classes: int | None = None) -> tuple[Match, dict[str, Origin]]:
    facts: list[Fact] = []
    found = choose_layout(view(shapes, known, classes), facts)
    return found, {fact.topic: fact.origin for fact in facts}


def declaring(**settings: Any) -> ModelFiles:
    return evidence(ModelSettings(**settings))


def config(architecture: str, model_type: str = "") -> ModelFiles:
    return evidence(config=Config(architectures=(architecture,), model_type=model_type))


TIMM_FEATURES = evidence(config=Config(pretrained_cfg=TimmPreprocessing(), num_classes=0))
NAMES = [name for layout in registry().layouts for name in layout.names]


def test_layout_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_layout_is_documented(name: str) -> None:
    assert f"`{name}`" in (Path(__file__).parents[5] / "docs" / "models.md").read_text()


@pytest.mark.parametrize(
    ("task", "shapes", "classes", "metadata", "name", "class_count"),
    [
        (DETECT, [(1, 84, 8400)], 80, {}, "raw", 80),
        (DETECT, [(1, 84, 8400)], None, {}, "raw", 80),
        (DETECT, [(1, 5, 8400)], 1, {}, "raw", 1),
        (DETECT, [(1, 6, 8400)], 2, {}, "raw", 2),
        (DETECT, [(1, 300, 6)], 80, {}, "nms", None),
        (DETECT, [(1, 300, 6)], None, {}, "nms", None),
        (DETECT, [(1, 300, 6)], 2, {}, "nms", None),
        (DETECT, [(1, 300, 6)], 1, {}, "nms", None),
        (DETECT, [(1, 0, 6)], None, {}, "nms", None),
        (DETECT, [(1, 300, 6)], 80, {"end_to_end": True}, "end2end", None),
        (DETECT, [(1, 8400, 84)], 80, {}, "raw-transposed", 80),
        (DETECT, [(1, 8400, 6)], 2, {}, "raw-transposed", 2),
        (DETECT, [(1, 8400, 6)], 2, {"suppressed": True}, "nms", None),
        (DETECT, [(1, 300, 57)], 1, {"task": "pose", "keypoints": (17, 3)}, "nms", None),
        (DETECT, [(1, 56, 8400)], 1, {"task": "pose", "keypoints": (17, 3)}, "raw", 1),
        (OBB, [(1, 20, 8400)], 15, {}, "raw", 15),
        (OBB, [(1, 300, 7)], 15, {}, "nms", None),
        (OBB, [(1, 8400, 20)], 15, {}, "raw-transposed", 15),
        (SEGMENT, [(1, 116, 8400), MASKS], 80, {}, "raw", 80),
        (SEGMENT, [(1, 300, 38), MASKS], 80, {}, "nms", None),
        (SEGMENT, [(1, 300, 38), MASKS], 80, {"end_to_end": True}, "end2end", None),
        (SEGMENT, [(1, 8400, 116), MASKS], 80, {}, "raw-transposed", 80),
    ],
)
def test_ultralytics_layouts_are_recognised_by_shapes(
    task: TaskType, shapes: Shapes, classes: int | None, metadata: Any, name: str, class_count: int
) -> None:
    found, origins = chosen(shapes, evidence(ModelSettings(task_type=task), **metadata), classes)
    assert (found.layout, found.classes, found.task_type) == (name, class_count, task)
    # The outputs are zeros, in which suppressed rows show no detection.
    origin = Origin.GUESSED if name == "nms" and not metadata else Origin.SHAPES
    assert (origins["task type"], origins["layout"]) == (Origin.DECLARED, origin)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([8, 8, 9, 9, 0.9, 3], ("nms", Origin.SHAPES)),
        ([0, 0, 0, 0, 0, 0], ("nms", Origin.GUESSED)),
        ([-1, -1, -1, -1, -1, -1], ("nms", Origin.GUESSED)),
        ([8, 8, 9, 9, 0.9, 0.3], None),
        ([8, 8, 9, 9, 3, 0.9], None),
    ],
)
def test_rows_of_the_black_image_show_whether_they_are_detections(
    row: list[float], expected: tuple[str, Origin] | None
) -> None:
    graph = view([(1, 300, 6)], declaring(task_type=DETECT))
    graph.outputs[0].blank[:] = row
    facts: list[Fact] = []
    if expected is None:
        with pytest.raises(ModelError, match="are of no known layout"):
            choose_layout(graph, facts)
    else:
        layout = choose_layout(graph, facts).layout
        assert (layout, facts[1].origin) == expected


# A 64x64 image has 84 cells in three grids, 85 in four.
@pytest.mark.parametrize(("classes", "columns"), [(None, 6), (1, 6), (None, 7), (2, 7)])
@pytest.mark.parametrize("count", [3 * 84, 3 * 85])
def test_rows_for_three_anchors_of_each_cell_are_read_as_yolov5(classes: int | None, columns: int, count: int) -> None:
    for known in (evidence(), declaring(task_type=DETECT)):
        found, origins = chosen([(1, count, columns)], known, classes)
        assert (found.layout, found.classes, found.task_type) == ("yolov5", columns - 5, DETECT)
        assert origins["layout"] is Origin.SHAPES


@pytest.mark.parametrize(("classes", "columns"), [(None, 6), (1, 6), (None, 7)])
@pytest.mark.parametrize("count", [84, 85])
def test_rows_for_each_cell_can_be_read_in_several_ways(classes: int | None, columns: int, count: int) -> None:
    with pytest.raises(ModelError, match="can be read in several ways") as caught:
        chosen([(1, count, columns)], evidence(), classes)
    assert re.findall(r'"layout": "([\w-]+)"', str(caught.value)) == ["raw-transposed", "yolov5", "yolox"]


def test_rows_beside_prototypes_of_masks_are_not_read_as_yolov5() -> None:
    with pytest.raises(ModelError, match="its task cannot be determined"):
        chosen([(1, 252, 6), (1, 32, 16, 16)], evidence())


def test_graph_with_suppression_may_have_as_many_rows_as_cells() -> None:
    assert chosen([(1, 84, 6)], evidence(task="detect", suppressed=True))[0].layout == "nms"


@pytest.mark.parametrize(
    ("declared", "shape", "class_count"),
    [
        ("raw-transposed", (1, 300, 6), 2),
        ("raw", (1, 6, 6), 2),
        ("nms", (1, 9000, 6), None),
        ("end2end", (1, 3, 6), None),
        ("yolov5", (1, 300, 6), 1),
        ("yolox", (1, 84, 7), 2),
    ],
)
def test_declared_layout_overrides_shapes(declared: str, shape: tuple[int, ...], class_count: int | None) -> None:
    found, origins = chosen([shape], declaring(layout=declared, task_type=DETECT))
    assert (found.layout, found.classes) == (declared, class_count)
    assert origins["layout"] is Origin.DECLARED


@pytest.mark.parametrize(
    ("known", "shapes", "classes", "task", "layout", "task_origin", "origin"),
    [
        (declaring(task_type=SEGMENT), [(1, 116, 8400), MASKS], None, SEGMENT, "raw", DECLARED, BY_SHAPE),
        (evidence(task="obb"), [(1, 84, 8400)], None, OBB, "raw", FILE, BY_SHAPE),
        (config("XForImageClassification"), {"logits": (1, 7), "h": (1, 5, 4)}, 7, CLASSIFY, "logits", CONFIG, FILE),
        (evidence(), {"logits": (1, 7), "features": (1, 512)}, None, CLASSIFY, "logits", BY_SHAPE, FILE),
        (config("XForImageClassification"), {"features": (1, 9)}, None, CLASSIFY, "logits", CONFIG, GUESS),
        (evidence(), {"embedding": (1, 512)}, None, EMBED, "embedding", FILE, FILE),
        (evidence(), {"features": (1, 512, 1, 1)}, 7, EMBED, "embedding", FILE, FILE),
        (evidence(), {"last_hidden_state": (1, 50, 8), "pooler_output": (1, 8)}, None, EMBED, "embedding", FILE, FILE),
        (TIMM_FEATURES, [(1, 768)], None, EMBED, "embedding", CONFIG, CONFIG),
        (declaring(layout="embedding"), [(1, 512)], None, EMBED, "embedding", FILE, DECLARED),
        (evidence(), [(1, 1000)], None, CLASSIFY, "logits", BY_SHAPE, GUESS),
        (evidence(), [(1, 9)], 9, CLASSIFY, "logits", BY_SHAPE, GUESS),
        (evidence(), {"class_scores": (1, 9)}, None, CLASSIFY, "logits", BY_SHAPE, GUESS),
        (evidence(), {"probs": (1, 5, 1, 1)}, None, CLASSIFY, "probabilities", BY_SHAPE, FILE),
        (evidence(), [(1, 116, 8400), MASKS], None, SEGMENT, "raw", BY_SHAPE, BY_SHAPE),
        (evidence(), [(1, 84, 8400)], 80, DETECT, "raw", BY_SHAPE, BY_SHAPE),
        (evidence(), [(1, 85, 8400)], 80, OBB, "raw", BY_SHAPE, BY_SHAPE),
        (evidence(), [(1, 300, 6)], 15, DETECT, "nms", GUESS, GUESS),
        (evidence(task="obb"), [(1, 300, 7)], 15, OBB, "nms", FILE, BY_SHAPE),
        (evidence(), [(1, 84, 8400)], None, DETECT, "raw", GUESS, BY_SHAPE),
        # YOLOv5 metadata has class names, but no task.
        (evidence(names=("a",) * 80), [(1, 25200, 85)], 80, DETECT, "yolov5", BY_SHAPE, BY_SHAPE),
        (config("YolosForObjectDetection", "yolos"), {**BOXES, "h": (1, 3, 3)}, 91, DETECT, "detr", CONFIG, CONFIG),
        (config("RTDetrV2ForObjectDetection", "rt_detr_v2"), BOXES, 92, DETECT, "detr-sigmoid", CONFIG, CONFIG),
        (evidence(), BOXES, 91, DETECT, "detr", BY_SHAPE, BY_SHAPE),
        (evidence(), BOXES, 92, DETECT, "detr-sigmoid", BY_SHAPE, BY_SHAPE),
        (evidence(), {"dets": (1, 300, 4), "labels": (1, 300, 91)}, None, DETECT, "rf-detr", FILE, FILE),
        (evidence(), RF_DETR_MASKS, None, SEGMENT, "rf-detr", FILE, FILE),
        (config("XForSemanticSegmentation"), {"logits": (1, 9, 8, 8)}, 9, SEGMENT, "semantic", CONFIG, BY_SHAPE),
        (evidence(task="semantic"), {"o_ids": (1, 64, 64)}, 3, SEGMENT, "class-map", FILE, BY_SHAPE),
        (evidence(), {"o_ids": (1, 1, 64, 64)}, None, SEGMENT, "class-map", BY_SHAPE, BY_SHAPE),
        (declaring(task_type=SEGMENT), [(1, 1, 64, 64)], None, SEGMENT, "mask", DECLARED, GUESS),
        (declaring(task_type=CLASSIFY), {"features": (1, 9)}, None, CLASSIFY, "logits", DECLARED, GUESS),
        (evidence(), {"out": (1, 21, 64, 64), "aux": (1, 21, 64, 64)}, None, SEGMENT, "semantic", BY_SHAPE, BY_SHAPE),
        (declaring(task_type=OBB), [(1, 1, 64, 64)], None, OBB, "text-map", DECLARED, BY_SHAPE),
        (evidence(characters="a\nb"), [(1, 40, 4)], None, READ, "ctc", FILE, FILE),
        (declaring(labels=("a",), layout="ctc"), [(1, 40, 2)], 1, READ, "ctc", FILE, DECLARED),
    ],
)  # fmt: skip
def test_task_and_layout_are_inferred_from_files_and_shapes(
    known: ModelFiles, shapes: Shapes, classes: int | None, task: TaskType, layout: str, task_origin: Any, origin: Any
) -> None:
    found, origins = chosen(shapes, known, classes)
    assert (found.task_type, found.layout) == (task, layout)
    assert (origins["task type"], origins["layout"]) == (task_origin, origin)


@pytest.mark.parametrize(
    "shapes",
    [
        {"dets": (1, 10, 4), "labels": (1, 10, 3), "masks": (1, 5, 8, 8)},
        {
            f"{kind}_{stride}": (1, 4, 5 if kind == "bbox" else 1)
            for kind in ("cls", "obj", "bbox")
            for stride in STRIDES
        },
    ],
    ids=["rf-detr with fewer masks", "yunet with wide boxes"],
)
def test_outputs_that_almost_fit_a_layout_are_rejected(shapes: Shapes) -> None:
    with pytest.raises(ModelError, match="its task cannot be determined"):
        chosen(shapes, evidence())


def test_paddle_output_names_are_recognised() -> None:
    inputs = ImageInputs(image=TensorSpec(name="x", datatype=Datatype.FP32, shape=(-1, 3, -1, -1)))
    graph_view = view({"sigmoid_0.tmp_0": (1, 1, 64, 64)}, evidence(), inputs=inputs)
    found = choose_layout(graph_view, [])
    assert (found.layout, found.task_type, found.names) == ("text-map", OBB, ("text",))


@pytest.mark.parametrize(
    ("shapes", "classes", "known", "reason"),
    [
        # Ambiguous outputs: the error names the settings to declare.
        (BOXES, None, evidence(), r'\{"layout": "detr"\} .* or \{"layout": "detr-sigmoid"\}'),
        ([(1, 25200, 85)], 80, evidence(), r'"raw-transposed"\} \(ORIENTED_OBJECT_DETECTION\) or .*"yolov5".*"yolox"'),
        ([(1, 25200, 6)], 1, evidence(), r'"nms"\} .*"yolov5".*"yolox"'),
        ([(1, 25200, 85)], 80, declaring(task_type=DETECT), r'\{"layout": "yolov5"\} .* or \{"layout": "yolox"\}'),
        # Unknown outputs.
        ([(1, 25200, 85)], None, declaring(task_type=DETECT), "no known layout .* yolov5,"),
        ([(1, 4, 8400)], None, declaring(task_type=DETECT), "if it has one of raw, .*, declare it as"),
        ([(1, 1000)], None, declaring(task_type=DETECT), "no known layout"),
        ([(1, 84, 8400)], 80, declaring(task_type=DETECT, layout="logits"), "layouts of OBJECT_DETECTION are raw"),
        ([(1, 84, 8400)], 80, declaring(task_type=DETECT, layout="nms"), "'nms', which its outputs .* do not have"),
        ([(1, 116, 8400)], 80, declaring(task_type=SEGMENT), "no known layout of IMAGE_SEGMENTATION with 80 labels"),
        ([(1, 3)], None, declaring(layout="row"), "known layouts are probabilities, logits, multi-label, raw,"),
        (BOXES, 50, evidence(), "its task cannot be determined"),
        # Shapes with several meanings.
        ([(1, 7)], None, evidence(), r'declare \{"task_type": "TENSOR"\} .*, or one of IMAGE_CLASSIFICATION, '),
        ([(1, 7)], 80, evidence(), "cannot be determined"),
        ([(1, 300, 7)], 15, evidence(), "cannot be determined"),
        ([(100, 1000)], None, evidence(), "cannot be determined"),
        ([(1, 10)], None, evidence(), "cannot be determined"),
        ([(1, 1)], None, evidence(), "cannot be determined"),
        ({"o_ids": (1, 40, 3)}, None, evidence(), "cannot be determined"),
        ([(1, 1, 128, 128)], None, evidence(), "cannot be determined"),
        ([(1, 512)], None, evidence(), r'cannot be determined .*\{"task_type": "TENSOR"\}.*\{"layout": "embedding"\}'),
        ({"features": (1, 7)}, 7, evidence(), "cannot be determined"),
        ({"embedding": (1, 512), "boxes": (1, 9, 4)}, None, evidence(), "cannot be determined"),
        ({"embedding": (1, 512), "age": (1, 1)}, None, evidence(), "cannot be determined"),
        ({"image_embeddings": (1, 256, 64, 64)}, None, evidence(), "cannot be determined"),
        ([(1, 512), (1, 9)], None, declaring(layout="embedding"), "'embedding', which its outputs .* do not have"),
        ({"boxes": (4, 4), "labels_ids": (1, 4), "scores": (1, 4)}, None, evidence(), "cannot be determined"),
        ([(1, 80), (1, 4)], None, evidence(), r'cannot be determined .* \{"outputs": \["NAME"\]\} to read only some'),
        ([(1, 9, 9)] * 10, None, evidence(), r"output7 \[1, 9, 9\] and 2 more"),
        # Empty outputs, and wrong numbers of characters.
        ([(1, 0)], None, evidence(), "cannot be determined"),
        ([(1, 3, 0, 4)], None, declaring(task_type=SEGMENT), "no known layout"),
        ([(1, 9, 7), (1, 1, 0, 4)], None, declaring(task_type=SEGMENT), "no known layout"),
        ({"o_ids": (1, 0, 4)}, None, evidence(), "cannot be determined"),
        ({"dets": (1, 9, 4), "labels": (1, 9, 0)}, None, evidence(), "cannot be determined"),
        ({"logits": (1, 9, 1), "pred_boxes": (1, 9, 4)}, None, declaring(layout="detr"), "do not have"),
        ({"o_ids": (1, 80)}, None, evidence(), "cannot be determined"),
        ([(1, 2)], None, declaring(task_type=READ), "need several .onnx files"),
        ([(1, 40, 9)], None, evidence(characters="a\nb"), "has 9 characters including the blank, .* metadata lists 2"),
        ([(1, 40, 9)], 1, declaring(labels=("a",), layout="ctc"), "has 9 characters .* model-settings.json lists 1"),
    ],
)  # fmt: skip
def test_ambiguous_or_unknown_outputs_are_rejected(
    shapes: Shapes, classes: int | None, known: ModelFiles, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        chosen(shapes, known, classes)
    assert str(caught.value).startswith("model.onnx: ")


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (evidence(task="depth"), "'depth'; supported are classify, detect, obb, segment, semantic and pose"),
        (evidence(config=Config(architectures=("CLIPForEverything",))), "CLIPForEverything.*ForObjectDetection"),
    ],
)
def test_unknown_task_is_rejected(known: ModelFiles, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        known.declared_task()


def test_removed_layout_names_its_successor() -> None:
    with pytest.raises(ModelError, match=r"layout rt-detr was removed in version .*: declare detections"):
        chosen([(1, 9, 9)], declaring(layout="rt-detr"))
