"""Classification: figures worked out by hand, and valor-lite's traps."""

import numpy as np
import pytest

from app.evaluation.answers import Answered
from app.evaluation.classes import measure_classes
from app.evaluation.report import Measures
from tests.support.evaluations import classified

FOUR = (
    classified("cat", {"cat": 0.8, "dog": 0.2}, "1.jpg", {"camera": "a"}),
    classified("cat", {"cat": 0.4, "dog": 0.6}, "2.jpg", {"camera": "b"}),
    classified("dog", {"cat": 0.3, "dog": 0.7}, "3.jpg", {"camera": "b"}),
    classified("dog", {"cat": 0.1, "dog": 0.9}, "4.jpg", {"camera": "b"}),
)


def values(measures: Measures) -> dict[str, float | None]:
    return {each.name: each.value for each in measures.figures}


def test_by_hand() -> None:
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
    assert mistake.why == "cat (0.40) was taken for dog (0.60)"


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(0)
    answered: list[Answered] = []
    scores: list[float] = []
    true: list[bool] = []
    for index in range(60):
        score, cat = float(rng.uniform()), bool(rng.random() < 0.4)
        answered.append(classified("cat" if cat else "dog", {"cat": score, "dog": 1 - score}, f"{index}.jpg"))
        scores.append(score)
        true.append(cat)
    positive = np.array([s for s, t in zip(scores, true, strict=True) if t])
    negative = np.array([s for s, t in zip(scores, true, strict=True) if not t])
    pairs = (positive[:, np.newaxis] > negative).mean()
    assert values(measure_classes(answered))["roc_auc"] == pytest.approx(pairs, abs=1e-6)


def test_an_image_without_a_class_counts_as_wrong() -> None:
    measures = measure_classes([*FOUR, classified("cat", {}, "5.jpg")])
    assert values(measures)["accuracy"] == 0.6
    assert any("1 images were given no class" in note for note in measures.notes)
    assert measures.mistakes[0].answered.item.id == "5.jpg"


def test_the_first_of_equals_is_taken_everywhere() -> None:
    answered = [classified("cat", {"dog": 0.5, "cat": 0.5}, "1.jpg"), classified("dog", {"dog": 0.4}, "2.jpg")]
    measures = measure_classes(answered)
    assert values(measures)["accuracy"] == 0.5
    assert [each.answered.item.id for each in measures.mistakes] == ["1.jpg"]
    assert measures.confusion is not None
    assert measures.confusion.counts == ((0, 1), (0, 1))
    assert measures.confusion.examples == {"cat -> dog": ("1.jpg",)}


def test_a_score_of_nothing_is_no_class() -> None:
    measures = measure_classes([classified("cat", {"cat": 0.0, "dog": 0.0}, "1.jpg")])
    assert (values(measures)["accuracy"], values(measures)["top5_accuracy"]) == (0, 0)
    assert measures.mistakes[0].why == "cat, nothing was found"
    assert measures.confusion is not None
    assert sum(map(sum, measures.confusion.counts)) == 1


def test_one_class_and_one_label_each() -> None:
    measures = measure_classes([classified("cat", {"cat": 1.0}, "1.jpg"), classified("cat", {"dog": 1.0}, "2.jpg")])
    assert values(measures)["accuracy"] == 0.5
    assert values(measures)["roc_auc"] is None
    assert any("undefined" in note for note in measures.notes)


def test_nothing() -> None:
    assert set(values(measure_classes([])).values()) == {None}


def test_a_label_of_the_model_only_is_no_class_of_the_mean() -> None:
    measures = measure_classes([classified("cat", {"cat": 0.9, "yak": 0.1}, "1.jpg")])
    assert values(measures)["recall"] == 1.0
    assert [row[0] for row in measures.tables[0].rows] == ["cat"]


def test_slices_divide_by_their_own_images() -> None:
    # valor-lite itself divides the right ones of a filtered evaluation by the images of the whole.
    rows = {row[0]: row for row in measure_classes(FOUR, ["camera"]).tables[-1].rows}
    assert rows["camera = a"][1:3] == (1, 1.0)
    assert rows["camera = b"][1:3] == (3, pytest.approx(2 / 3))


def test_the_best_five() -> None:
    scores = {f"c{index}": 0.9 - index / 10 for index in range(7)}
    answered = [classified("c4", scores, "1.jpg"), classified("c5", scores, "2.jpg")]
    assert values(measure_classes(answered))["top5_accuracy"] == 0.5
