"""Object detection metrics, and pitfalls of valor-lite."""

import math
from collections.abc import Sequence

import msgspec
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation.answers import EvaluatedItem, PredictedObject, parse_records
from app.evaluation.dataset import LabelledObject
from app.evaluation.objects import measure_objects
from app.evaluation.report import Measures
from app.evaluation.shapes import even_odd, predicted_area, union
from tasks.task import TaskType
from tests.support.evaluation_samples import detection_sample, item

SQUARE = (10.0, 10.0, 50.0, 50.0)
FAR = (200.0, 200.0, 240.0, 240.0)


def value(measures: Measures, name: str) -> float | None:
    return next(figure.value for figure in measures.figures if figure.name == name)


def measured(*answered: EvaluatedItem, slices: Sequence[str] = ()) -> Measures:
    return measure_objects(answered, TaskType.OBJECT_DETECTION, 0.5, slices)


def test_exact_findings_have_perfect_metrics() -> None:
    measures = measured(detection_sample([("cat", SQUARE), ("dog", FAR)], [("cat", 0.9, SQUARE), ("dog", 0.8, FAR)]))
    assert {figure.name: figure.value for figure in measures.figures} == dict.fromkeys(
        ("map", "ap50", "ap75", "map_coco", "ar", "precision", "recall", "f1"), 1.0
    )
    assert measures.mistakes == ()


def test_metrics_without_objects_and_findings_are_none() -> None:
    measures = measured(detection_sample([], []), detection_sample([], []))
    assert {figure.value for figure in measures.figures} == {None}
    assert "nothing to measure" in measures.notes[0]
    assert value(measured(), "map") is None


def test_metrics_without_findings_are_zero() -> None:
    measures = measured(detection_sample([("cat", SQUARE)], []))
    assert [value(measures, name) for name in ("map", "ar", "recall", "f1", "precision")] == [0, 0, 0, 0, None]
    assert measures.confusion is not None
    assert measures.confusion.missed == (1,)


def test_metrics_without_objects_are_zero_and_recall_is_none() -> None:
    measures = measured(detection_sample([], [("cat", 0.9, SQUARE)]))
    assert [value(measures, name) for name in ("map", "precision", "f1", "recall", "map_coco")] == [0, 0, 0, None, None]


def test_label_only_in_findings_counts_as_zero_except_in_coco_mean() -> None:
    measures = measured(detection_sample([("cat", SQUARE)], [("cat", 0.9, SQUARE), ("yak", 0.8, FAR)]))
    assert (value(measures, "map"), value(measures, "map_coco")) == (0.5, 1.0)
    assert any("nowhere true" in note for note in measures.notes)


def test_more_than_100_objects_are_counted() -> None:
    object_boxes = [
        (20.0 * (i % 20), 20.0 * (i // 20), 20.0 * (i % 20) + 15, 20.0 * (i // 20) + 15) for i in range(150)
    ]
    measures = measured(
        detection_sample(
            [("cat", p) for p in object_boxes], [("cat", 0.9 - i / 1000, p) for i, p in enumerate(object_boxes)]
        )
    )
    assert value(measures, "map") == pytest.approx(1.0)


def test_low_scores_count_in_average_precision_only() -> None:
    measures = measured(detection_sample([("cat", SQUARE)], [("cat", 0.2, SQUARE)]))
    assert (value(measures, "map"), value(measures, "recall")) == (1.0, 0.0)


def test_confusion_matrix_names_example_images() -> None:
    measures = measured(
        detection_sample([("cat", SQUARE)], [("dog", 0.9, SQUARE)], "mixed.jpg"),
        detection_sample([("cat", SQUARE)], [("cat", 0.9, FAR)], "missed.jpg"),
    )
    confusion = measures.confusion
    assert confusion is not None
    assert confusion.labels == ("cat", "dog")
    assert confusion.counts == ((0, 1), (0, 0))
    assert (confusion.missed, confusion.extra) == ((1, 0), (1, 0))
    assert confusion.examples == {
        "cat -> dog": ("mixed.jpg",),
        "cat -> ": ("missed.jpg",),
        " -> cat": ("missed.jpg",),
    }


def test_mistakes_are_sorted_worst_image_first() -> None:
    good = detection_sample([("cat", SQUARE)], [("cat", 0.9, SQUARE)], "good.jpg")
    bad = detection_sample([("cat", SQUARE)], [("cat", 0.9, SQUARE), ("cat", 0.8, FAR)], "bad.jpg")
    worse = detection_sample([("cat", SQUARE), ("dog", FAR)], [("yak", 0.9, (300, 300, 350, 350))], "worse.jpg")
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
        ap50_values = [row[3] for row in alone.tables[0].rows if row[1] and isinstance(row[3], float)]
        assert rows[name] == (
            len(subset),
            value(alone, "map_coco"),
            pytest.approx(sum(ap50_values) / len(ap50_values)),
            *(value(alone, figure) for figure in ("ar", "precision", "recall", "f1")),
        )


@pytest.mark.parametrize(("score", "recall"), [(0.9, 1.0), (0.1, 0.0)])
def test_findings_in_ignored_objects_are_not_counted(score: float, recall: float) -> None:
    crowd = LabelledObject(label="cat", box=(100, 100, 400, 400), ignored=True)
    obj = LabelledObject(label="cat", box=SQUARE)
    inside = PredictedObject(label="cat", score=0.95, box=(150, 150, 200, 200))
    other = PredictedObject(label="dog", score=0.95, box=(150, 150, 200, 200))
    found = PredictedObject(label="cat", score=score, box=SQUARE)
    answered = EvaluatedItem(item=item(objects=[obj, crowd]), predictions=(inside, found))
    measures = measured(answered)
    assert (value(measures, "map"), value(measures, "recall")) == (1.0, recall)
    assert "1 findings inside ignored objects" in measures.notes[0]
    wrong = measured(msgspec.structs.replace(answered, predictions=(other, found)))
    assert value(wrong, "map") == 0.5


def test_finding_on_object_inside_crowd_is_counted() -> None:
    crowd = LabelledObject(label="cat", box=(0, 0, 400, 400), ignored=True)
    obj = LabelledObject(label="cat", box=SQUARE)
    found = PredictedObject(label="cat", score=0.9, box=SQUARE)
    assert value(measured(EvaluatedItem(item=item(objects=[crowd, obj]), predictions=(found,))), "recall") == 1.0


def oriented(
    cx: float, cy: float, w: float, h: float, r: float, width: int = 1000, height: int = 500
) -> PredictedObject:
    record = {
        "label": "ship",
        "score": 0.9,
        "cx": cx / width,
        "cy": cy / height,
        "w": w / width,
        "h": h / height,
        "r": r,
    }
    answered = parse_records([record], item(size=(width, height)), TaskType.ORIENTED_OBJECT_DETECTION)
    return answered.predictions[0]


def test_oriented_boxes_are_scaled_before_rotation() -> None:
    # 200 x 40 at 90 degrees in a wide image: rotation before scaling would give an IoU of one third.
    upright = shapely.box(480, 150, 520, 350)
    assert predicted_area(oriented(500, 250, 200, 40, math.pi / 2)).intersection(upright).area == pytest.approx(8000)
    truth = LabelledObject(label="ship", corners=((480, 150), (520, 150), (520, 350), (480, 350)))
    answered = EvaluatedItem(item=item(objects=[truth]), predictions=(oriented(500, 250, 200, 40, math.pi / 2),))
    assert value(measure_objects([answered], TaskType.ORIENTED_OBJECT_DETECTION, 0.5), "map") == 1.0


@given(r=st.floats(-7, 7), w=st.floats(1, 300), h=st.floats(1, 300))
def test_rotation_by_180_degrees_changes_nothing(r: float, w: float, h: float) -> None:
    one, other = predicted_area(oriented(500, 250, w, h, r)), predicted_area(oriented(500, 250, w, h, r - math.pi))
    assert one.symmetric_difference(other).area == pytest.approx(0, abs=1e-6 * w * h)
    assert one.area == pytest.approx(w * h, rel=1e-6)


def test_rotation_is_clockwise_with_y_down() -> None:
    corners = oriented(500, 250, 100, 2, math.pi / 4).corners
    assert corners is not None
    # A small clockwise rotation moves the left end of a bar up.
    assert corners[0][0] < 500
    assert corners[0][1] < 250


def ring(left: float, top: float, right: float, bottom: float) -> tuple[tuple[float, float], ...]:
    return ((left, top), (right, top), (right, bottom), (left, bottom))


def test_inner_ring_is_a_hole_only_by_even_odd_rule() -> None:
    rings = [ring(0, 0, 90, 90), ring(10, 10, 40, 40)]
    assert (even_odd(rings).area, union(rings).area) == (7200, 8100)


@pytest.mark.parametrize(
    ("rings", "area"),
    [
        ([], 0),
        ([((1, 1),)], 0),
        ([((1, 1), (9, 9))], 0),
        ([((0, 0), (10, 10), (10, 0), (0, 10))], 50),
        ([((0, 0), (5, 0), (9, 0))], 0),
        ([ring(0, 0, 10, 10), ring(20, 0, 30, 10)], 200),
        ([ring(0, 0, 10, 10), ring(0, 0, 10, 10)], 0),
    ],
    ids=["none", "point", "line", "bow tie", "flat", "two parts", "twice"],
)
def test_outlines_rejected_by_valor_are_measured(rings: list[tuple[tuple[float, float], ...]], area: float) -> None:
    found = PredictedObject(label="cat", score=0.9, rings=tuple(rings))
    assert predicted_area(found).area == pytest.approx(area)
    truth = LabelledObject(label="cat", rings=(ring(0, 0, 10, 10), ring(20, 0, 30, 10)))
    measures = measure_objects(
        [EvaluatedItem(item=item(objects=[truth]), predictions=(found,))], TaskType.IMAGE_SEGMENTATION, 0.5
    )
    assert value(measures, "map") == (1.0 if area == 200 else 0.0)
    assert value(measures, "precision") == (1.0 if area == 200 else 0.0)
