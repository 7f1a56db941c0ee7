"""Object detection metrics, where COCO and Valor differ, and both tools on random sets."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import valor_lite.object_detection

from app.plugins.evaluation.answers import EvaluatedItem, PredictedObject, parse_records
from app.plugins.evaluation.dataset import LabelledObject, Ring
from app.plugins.evaluation.masks import read_run_lengths
from app.plugins.evaluation.metrics.coco import IOUS, compare
from app.plugins.evaluation.metrics.objects import measure_objects
from app.plugins.evaluation.report import Confusion, Measures
from tasks.task import TaskType
from tasks.vision.contours import contours_of_mask
from tests.support.data.coco_reference import LABELS, coco_figures, random_set
from tests.support.data.evaluation_samples import detection_sample, item

SQUARE = (10.0, 10.0, 50.0, 50.0)
FAR = (200.0, 200.0, 240.0, 240.0)


def value(measures: Measures, name: str) -> float | None:
    return next(figure.value for figure in measures.figures if figure.name == name)


def measured(
    *answered: EvaluatedItem,
    slices: Sequence[str] = (),
    labels: Sequence[str] = ("cat", "dog"),
    task: TaskType = TaskType.OBJECT_DETECTION,
) -> Measures:
    return measure_objects(answered, labels, task, 0.5, slices)


def test_metrics_without_objects_and_findings_are_none() -> None:
    for answered in ([], [detection_sample([], [])] * 2):
        measures = measured(*answered)
        assert {figure.value for figure in measures.figures} == {None}
        assert "nothing to measure" in measures.notes[0]


def test_metrics_without_findings_are_zero_and_without_objects_none_except_of_valor() -> None:
    names = ("map_coco", "ar", "recall", "mAPAveragedOverIOUs", "f1", "precision")
    missed, extra = detection_sample([("cat", SQUARE)], []), detection_sample([], [("cat", 0.9, SQUARE)])
    assert [value(measured(missed), name) for name in names] == [0, 0, 0, 0, 0, None]
    assert [value(measured(extra), name) for name in names] == [None, None, None, 0, 0, 0]


def test_labels_of_the_model_only_count_in_valor_only() -> None:
    strays = [(f"stray {index}", 0.8, FAR) for index in range(3)]
    measures = measured(detection_sample([("cat", SQUARE)], [("cat", 0.9, SQUARE), *strays]))
    assert (value(measures, "map_coco"), value(measures, "precision")) == (1.0, 1.0)
    assert value(measures, "mAPAveragedOverIOUs") == 0.25
    assert [row[0] for row in measures.tables[0].rows] == ["cat"]
    assert measures.mistakes == ()


def test_classes_without_objects_share_a_row() -> None:
    found = [("cat", 0.9, SQUARE), ("dog", 0.9, FAR), ("owl", 0.9, FAR)]
    answered = detection_sample([("cat", SQUARE)], found)
    measures = measured(answered, labels=("cat", "dog", "owl", "yak"))
    assert measures.tables[0].rows == (
        ("cat", 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
        ("2 classes without objects", 0, None, None, None, None, 0.0, None, 0.0),
    )
    assert value(measures, "precision") == pytest.approx(1 / 3)


def test_only_valor_counts_more_than_100_findings() -> None:
    boxes = [(20.0 * (i % 20), 20.0 * (i // 20), 20.0 * (i % 20) + 15, 20.0 * (i // 20) + 15) for i in range(150)]
    found = [("cat", 0.9 - i / 1000, box) for i, box in enumerate(boxes)]
    measures = measured(detection_sample([("cat", box) for box in boxes], found))
    assert value(measures, "mAPAveragedOverIOUs") == pytest.approx(1.0)
    assert value(measures, "map_coco") == pytest.approx(67 / 101)


def test_low_scores_count_in_average_precision_only() -> None:
    measures = measured(detection_sample([("cat", SQUARE)], [("cat", 0.2, SQUARE)]))
    assert (value(measures, "map_coco"), value(measures, "recall")) == (1.0, 0.0)


def test_confusion_matrix_names_example_images() -> None:
    measures = measured(
        detection_sample([("cat", SQUARE)], [("dog", 0.9, SQUARE)], "mixed.jpg"),
        detection_sample([("cat", SQUARE)], [("cat", 0.9, FAR)], "missed.jpg"),
    )
    examples = {"cat -> dog": ("mixed.jpg",), "cat -> ": ("missed.jpg",), " -> cat": ("missed.jpg",)}
    assert measures.confusion == Confusion(
        labels=("cat", "dog"), counts=((0, 1), (0, 0)), missed=(1, 0), extra=(1, 0), examples=examples
    )


def test_mistakes_are_sorted_worst_image_first() -> None:
    good = detection_sample([("cat", SQUARE)], [("cat", 0.9, SQUARE)], "good.jpg")
    bad = detection_sample([("cat", SQUARE)], [("cat", 0.9, SQUARE), ("cat", 0.8, FAR)], "bad.jpg")
    worse = detection_sample([("cat", SQUARE), ("dog", FAR)], [("cat", 0.9, (300, 300, 350, 350))], "worse.jpg")
    first, second = measured(good, bad, worse).mistakes
    assert (first.result.item.id, first.missed, first.wrong, first.right) == ("worse.jpg", (0, 1), (0,), ())
    assert (second.result.item.id, second.missed, second.wrong, second.right) == ("bad.jpg", (), (1,), (0,))


def test_slice_metrics_equal_evaluation_of_slice_alone() -> None:
    day = [detection_sample([("cat", SQUARE)], [("cat", 0.9, SQUARE)], "1.jpg", {"light": "day", "iou": "x"})]
    night = [
        detection_sample([("dog", SQUARE)], [("cat", 0.9, SQUARE), ("dog", 0.3, SQUARE)], "2.jpg", {"light": "night"}),
        detection_sample([("dog", FAR)], [("dog", 0.9, FAR)], "3.jpg", {"light": "night"}),
    ]
    # A metadata key may have the name of a column of valor-lite.
    measures = measured(*day, *night, slices=("light", "iou"))
    rows = {row[0]: row[1:] for row in measures.tables[-1].rows}
    assert list(rows) == ["light = day", "light = night", "iou = (none)", "iou = x"]
    for name, subset in (("light = day", day), ("light = night", night), ("iou = x", day), ("iou = (none)", night)):
        alone = measured(*subset)
        assert rows[name] == (len(subset), *(value(alone, column) for column in measures.tables[-1].columns[2:]))


def test_chariots_average_comes_last_if_the_model_finds_labels_without_objects() -> None:
    same, other = [("cat", 0.9, SQUARE)], [("cat", 0.9, SQUARE), ("bird", 0.8, FAR)]
    names = [
        [figure.name for figure in measured(detection_sample([("cat", SQUARE)], found)).figures]
        for found in (same, other)
    ]
    assert [found.index("mAPAveragedOverIOUs") for found in names] == [2, len(names[1]) - 1]


def test_findings_in_ignored_objects_count_only_on_others_inside() -> None:
    crowd = LabelledObject(label="cat", box=(0, 0, 400, 400), ignored=True)
    obj = LabelledObject(label="cat", box=SQUARE)
    found, inside, other = (
        PredictedObject(label=label, score=0.95, box=box)
        for label, box in (("cat", SQUARE), ("cat", (150, 150, 200, 200)), ("dog", (150, 150, 200, 200)))
    )
    answered = EvaluatedItem(item=item(objects=[obj, crowd]), predictions=(inside, found))
    measures = measured(answered)
    assert [value(measures, name) for name in ("map_coco", "mAPAveragedOverIOUs", "recall")] == [1, 1, 1]
    assert "1 findings inside ignored objects" in measures.notes[0]
    wrong = measured(msgspec.structs.replace(answered, predictions=(other, found)))
    assert value(wrong, "mAPAveragedOverIOUs") == 0.5


def oriented(
    cx: float, cy: float, w: float, h: float, r: float, width: int = 1000, height: int = 500
) -> PredictedObject:
    place = {"cx": cx / width, "cy": cy / height, "w": w / width, "h": h / height, "r": r}
    image, task = item(size=(width, height)), TaskType.ORIENTED_OBJECT_DETECTION
    return parse_records([{"label": "ship", "score": 0.9, **place}], image, task).predictions[0]


def overlap(prediction: PredictedObject, corners: Ring, *, ignored: bool = False) -> float:
    truth = LabelledObject(label="ship", rings=(corners,), ignored=ignored)
    answered = EvaluatedItem(item=item(objects=[truth]), predictions=(prediction,))
    return float(compare(answered, TaskType.ORIENTED_OBJECT_DETECTION).overlaps[0, 0])


def ring(left: float, top: float, right: float, bottom: float) -> Ring:
    return ((left, top), (right, top), (right, bottom), (left, bottom))


def test_oriented_boxes_are_scaled_before_rotation_and_measured() -> None:
    # 200 x 40 at 90 degrees in a wide image: rotation before scaling would give an IoU of one third.
    truth = LabelledObject(label="ship", rings=(ring(480, 150, 520, 350),))
    found = (oriented(500, 250, 200, 40, math.pi / 2), oriented(100, 250, 200, 40, 0))
    answered = EvaluatedItem(item=item(objects=[truth]), predictions=found)
    measures = measured(answered, labels=("ship",), task=TaskType.ORIENTED_OBJECT_DETECTION)
    assert [value(measures, name) for name in ("map_coco", "precision", "recall")] == [1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("corners", "ignored", "expected"),
    [
        (ring(400, 230, 500, 270), False, 0.5),
        (ring(450, 230, 550, 270), False, 0.5),
        (ring(400, 230, 900, 270), True, 1.0),
        # The same corners in an order in which the outline crosses itself cover half of the box.
        (((400, 230), (600, 270), (600, 230), (400, 270)), False, 0.5),
        (((400, 230), (500, 230), (600, 230), (450, 230)), False, 0.0),
    ],
    ids=["half", "inside", "crowd", "crossed", "flat"],
)
def test_overlap_of_oriented_boxes(corners: Ring, ignored: bool, expected: float) -> None:
    assert overlap(oriented(500, 250, 200, 40, 0), corners, ignored=ignored) == pytest.approx(expected)


def test_rotation_is_clockwise_with_y_down() -> None:
    (corners,) = oriented(500, 250, 100, 2, math.pi / 4).outlines
    # A small clockwise rotation moves the left end of a bar up.
    assert corners[0][0] < 500
    assert corners[0][1] < 250


def segmented(truth: LabelledObject, rings: Sequence[Ring]) -> Measures:
    found = PredictedObject(label="cat", score=0.9, rings=tuple(rings))
    answered = EvaluatedItem(item=item(objects=[truth], size=(64, 48)), predictions=(found,))
    return measured(answered, task=TaskType.IMAGE_SEGMENTATION)


def test_perfect_mask_with_a_hole_and_two_parts_has_perfect_metrics() -> None:
    mask = np.zeros((48, 64), np.uint8)
    mask[10:22, 20:31] = mask[30:34, 40:60] = 1
    mask[13:17, 24:28] = 0
    runs = np.diff(np.flatnonzero(np.diff(mask.ravel(order="F"), prepend=0, append=1 - mask[-1, -1])), prepend=0)
    truth = LabelledObject(label="cat", mask=read_run_lengths(runs.tolist(), 48, 64))
    rings = [tuple((x, y) for x, y in contour.tolist()) for contour in contours_of_mask(mask)]
    assert value(segmented(truth, rings), "map_coco") == 1.0


@pytest.mark.parametrize(
    "rings",
    [[], [((1, 1),)], [((1, 1), (9, 9))], [((0, 0), (5, 0), (9, 0))], [ring(-90, -90, -10, -10)]],
    ids=["none", "point", "line", "flat", "outside"],
)
def test_degenerate_outlines_are_measured(rings: list[Ring]) -> None:
    measures = segmented(LabelledObject(label="cat", rings=(ring(20, 10, 40, 30),)), rings)
    assert [value(measures, name) for name in ("map_coco", "precision", "recall")] == [0, 0, 0]


VALOR: Any = valor_lite.object_detection
NAMES = ("map_coco", "ap50", "ap75", "ar")


@pytest.mark.parametrize("digits", [None, 1], ids=["distinct scores", "equal scores"])
@pytest.mark.parametrize("masks", [False, True], ids=["boxes", "masks"])
@pytest.mark.parametrize("seed", range(2))
def test_average_precision_and_recall_equal_coco(seed: int, masks: bool, digits: int | None) -> None:
    created = random_set(seed, digits=digits, masks=masks)
    task = TaskType.IMAGE_SEGMENTATION if masks else TaskType.OBJECT_DETECTION
    ours = measure_objects(created.results, LABELS, task, 0.5)
    expected, precision = coco_figures(created.truth, created.found, masks=masks)
    figures = {figure.name: figure.value for figure in ours.figures}
    assert {name: figures[name] for name in NAMES} == pytest.approx(expected, abs=1e-9)
    classes = {row[0]: row[2:5] for row in ours.tables[0].rows}
    for index, label in enumerate(LABELS):
        aps = precision[:, :, index].mean(), precision[0, :, index].mean(), precision[5, :, index].mean()
        assert classes[label] == pytest.approx(aps, abs=1e-9)


@pytest.mark.parametrize("digits", [None, 1], ids=["distinct scores", "equal scores"])
def test_mean_average_precision_of_the_platform_equals_valor_lite(digits: int | None) -> None:
    results = random_set(5, digits=digits, crowds=0).results
    loader = VALOR.Loader.in_memory()
    for number, result in enumerate(results):
        truths = [valor_box(i, one.box, one.label, []) for i, one in enumerate(result.item.objects)]
        found = [valor_box(i, one.box, one.label, [one.score]) for i, one in enumerate(result.predictions)]
        loader.add_bounding_boxes([VALOR.Detection(uid=str(number), groundtruths=truths, predictions=found)])
    metrics = loader.finalize().compute_precision_recall(iou_thresholds=list(IOUS), score_thresholds=[0.5])
    (metric,) = metrics[VALOR.MetricType.mAPAveragedOverIOUs]
    # Valor's figure counts labels that the dataset does not have.
    ours = measure_objects(results, ("cat",), TaskType.OBJECT_DETECTION, 0.5)
    figures = {figure.name: figure.value for figure in ours.figures}
    assert figures["mAPAveragedOverIOUs"] == pytest.approx(metric.value, abs=1e-12)


def valor_box(index: int, box: Any, label: str, scores: list[float]) -> Any:
    sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return VALOR.BoundingBox(uid=str(index), labels=[label], scores=scores, **sides)
