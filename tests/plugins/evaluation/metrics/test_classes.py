"""Metrics of classes (against scikit-learn), of text answers (exact match), and of pixels."""

from typing import Any

import numpy as np
import pytest
import sklearn.metrics

from app.plugins.evaluation.answers import EvaluatedItem, PredictedObject
from app.plugins.evaluation.dataset import LabelledObject, Ring
from app.plugins.evaluation.metrics.classes import measure_classes
from app.plugins.evaluation.metrics.pixels import measure_pixels
from app.plugins.evaluation.metrics.texts import exact_match, measure_texts
from app.plugins.evaluation.report import Measures
from tests.support.data.evaluation_samples import classification_sample, item

SKLEARN: Any = sklearn.metrics
FOUR = (
    classification_sample("cat", {"cat": 0.8, "dog": 0.2}, "1.jpg", {"camera": "a"}),
    classification_sample("cat", {"cat": 0.4, "dog": 0.6}, "2.jpg", {"camera": "b"}),
    classification_sample("dog", {"cat": 0.3, "dog": 0.7}, "3.jpg", {"camera": "b"}),
    classification_sample("dog", {"cat": 0.1, "dog": 0.9}, "4.jpg", {"camera": "b"}),
)


def values(measures: Measures) -> dict[str, float | None]:
    return {figure.name: figure.value for figure in measures.figures}


def test_metrics_match_hand_computed_values() -> None:
    measures = measure_classes(FOUR)
    assert values(measures) == {
        "accuracy": 0.75,
        "top5_accuracy": 1.0,
        "precision": pytest.approx((1 + 2 / 3) / 2),
        "recall": 0.75,
        "f1": pytest.approx((2 / 3 + 0.8) / 2),
        "roc_auc": 1.0,
    }
    assert measures.confusion is not None
    assert measures.confusion.counts == ((1, 1), (0, 2))
    assert measures.confusion.examples == {"cat -> dog": ("2.jpg",)}
    (mistake,) = measures.mistakes
    assert mistake.description == "cat (0.40) was taken for dog (0.60)"


def test_image_without_prediction_counts_as_wrong() -> None:
    measures = measure_classes([*FOUR, classification_sample("cat", {}, "5.jpg")])
    assert values(measures)["accuracy"] == 0.6
    assert any("1 images were given no class" in note for note in measures.notes)
    assert measures.mistakes[0].result.item.id == "5.jpg"


def test_first_of_equal_scores_is_the_prediction() -> None:
    first = classification_sample("cat", {"dog": 0.5, "cat": 0.5}, "1.jpg")
    measures = measure_classes([first, classification_sample("dog", {"dog": 0.4}, "2.jpg")])
    assert values(measures)["accuracy"] == 0.5
    assert [mistake.result.item.id for mistake in measures.mistakes] == ["1.jpg"]
    assert measures.confusion is not None
    assert measures.confusion.counts == ((0, 1), (0, 1))


def test_score_of_zero_is_no_prediction() -> None:
    measures = measure_classes([classification_sample("cat", {"cat": 0.0, "dog": 0.0}, "1.jpg")])
    assert (values(measures)["accuracy"], values(measures)["top5_accuracy"]) == (0, 0)
    assert measures.mistakes[0].description == "cat, nothing was found"
    assert measures.confusion is not None
    assert sum(map(sum, measures.confusion.counts)) == 1


def test_roc_auc_of_single_class_is_undefined() -> None:
    measures = measure_classes([classification_sample("cat", {label: 1.0}, label) for label in ("cat", "dog")])
    assert (values(measures)["accuracy"], values(measures)["roc_auc"]) == (0.5, None)
    assert any("undefined" in note for note in measures.notes)


def test_metrics_of_nothing_are_none() -> None:
    for measures in (measure_classes([]), measure_texts([]), measure_pixels([], ["cat"], 0.5)):
        assert {figure.value for figure in measures.figures} == {None}
        assert measures.tables == ()


def test_label_unknown_to_dataset_is_not_in_mean() -> None:
    measures = measure_classes([classification_sample("cat", {"cat": 0.9, "yak": 0.1}, "1.jpg")])
    assert values(measures)["recall"] == 1.0
    assert [row[0] for row in measures.tables[0].rows] == ["cat"]


def test_slice_accuracy_divides_by_images_of_slice() -> None:
    rows = {row[0]: row for row in measure_classes(FOUR, ["camera"]).tables[-1].rows}
    assert rows["camera = a"][1:3] == (1, 1.0)
    assert rows["camera = b"][1:3] == (3, pytest.approx(2 / 3))


def test_figures_of_equal_scores_equal_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    labels = [f"c{index}" for index in range(8)]
    scores = rng.integers(1, 10, (200, len(labels))) / 10
    true = [labels[int(index)] for index in rng.integers(0, len(labels), 200).tolist()]
    answered = [
        classification_sample(label, dict(zip(labels, row.tolist(), strict=True)), f"{index}.jpg")
        for index, (label, row) in enumerate(zip(true, scores, strict=True))
    ]
    figures = values(measure_classes(answered))
    assert figures["top5_accuracy"] == SKLEARN.top_k_accuracy_score(true, scores, k=5, labels=labels)
    one_hot = np.array([[name == label for name in labels] for label in true])
    assert figures["roc_auc"] == pytest.approx(SKLEARN.roc_auc_score(one_hot, scores, average="macro"))


@pytest.mark.parametrize(
    ("answer", "right", "exact"),
    [
        ("star", ["star"], 1),
        ("A Star.", ["star"], 1),
        ("the red star", ["star", "red star"], 1),
        ("red star", ["blue star"], 0),
        ("", ["star"], 0),
        ("", [""], 1),
        ("stars", ["star"], 0),
        ("\u0065\u0301t\u00e9", ["\u00e9t\u00e9"], 1),
    ],
)
def test_exact_match_ignores_case_punctuation_and_articles(answer: str, right: list[str], exact: float) -> None:
    assert exact_match(answer, right) == exact


def answered(answer: str, right: str, kind: str) -> EvaluatedItem:
    question_item = item(f"{answer}#{kind}", question="What?", answers=[right], metadata={"kind": kind})
    return EvaluatedItem(item=question_item, answer=answer)


def test_means_and_slices_are_computed() -> None:
    results = [answered("a b", "b", "x"), answered("two", "three", "y"), answered("", "six", "y")]
    measures = measure_texts(results, ["kind"])
    assert [figure.value for figure in measures.figures] == [pytest.approx(1 / 3)]
    (table,) = measures.tables
    assert table.rows == (("kind = x", 1, 1), ("kind = y", 2, 0))
    assert [mistake.description for mistake in measures.mistakes] == [
        "What? Right: three. Answered: two",
        "What? Right: six. Answered: (nothing)",
    ]


def square(left: int, top: int, side: int) -> tuple[Ring, ...]:
    """Return an outline between pixel centres that covers `side` by `side` pixels."""
    right, bottom = left + side - 1, top + side - 1
    return (((left, top), (right, top), (right, bottom), (left, bottom)),)


def truth(label: str, left: int, top: int, side: int, *, ignored: bool = False) -> LabelledObject:
    """Return a polygon along the edges of `side` by `side` pixels."""
    right, bottom = left + side, top + side
    rings = (((left, top), (right, top), (right, bottom), (left, bottom)),)
    return LabelledObject(label=label, rings=rings, ignored=ignored)


def segmented(objects: list[LabelledObject], found: list[tuple[str, float, tuple[Ring, ...]]]) -> EvaluatedItem:
    findings = tuple(PredictedObject(label=label, score=score, rings=rings) for label, score, rings in found)
    return EvaluatedItem(item=item(objects=objects, size=(20, 10)), predictions=findings)


def test_pixel_metrics_match_hand_computed_values() -> None:
    image = segmented([truth("cat", 0, 0, 4)], [("cat", 0.9, square(2, 0, 4)), ("cat", 0.1, square(10, 0, 4))])
    measures = measure_pixels([image], ["cat", "dog"], 0.5)
    assert [figure.value for figure in measures.figures] == [pytest.approx(1 - 16 / 200), pytest.approx(8 / 24)]
    (table,) = measures.tables
    assert table.rows == (("cat", pytest.approx(8 / 24), pytest.approx(0.5), pytest.approx(0.5)),)


def test_pixel_belongs_to_the_best_finding() -> None:
    found = [("dog", 0.6, square(0, 0, 4)), ("cat", 0.9, square(0, 0, 4))]
    measures = measure_pixels([segmented([truth("cat", 0, 0, 4)], found)], ["cat", "dog"], 0.5)
    assert measures.figures[0].value == 1.0


def test_ignored_pixels_are_not_counted() -> None:
    objects = [truth("cat", 0, 0, 4), truth("cat", 10, 0, 4, ignored=True)]
    found = [("cat", 0.9, square(0, 0, 4)), ("cat", 0.9, square(10, 0, 4))]
    measures = measure_pixels([segmented(objects, found)], ["cat"], 0.5)
    assert [figure.value for figure in measures.figures] == [1.0, 1.0]


def test_class_without_objects_is_not_in_the_mean() -> None:
    found = [("cat", 0.9, square(0, 0, 4)), ("dog", 0.9, square(10, 0, 4))]
    measures = measure_pixels([segmented([truth("cat", 0, 0, 4)], found)], ["cat", "dog"], 0.5)
    assert measures.figures[1].value == 1.0
    (table,) = measures.tables
    assert [row[0] for row in table.rows] == ["cat"]
