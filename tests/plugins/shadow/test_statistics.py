"""Statistics of pairs, against SciPy, and the comparison of both answers with a truth."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats

from app.plugins.evaluation.metrics.intervals import wilson
from app.plugins.recording.inference import RecordedImage, Truth
from app.plugins.shadow.report import ShadowVerdict, judge_image, shadow_verdict
from app.plugins.shadow.rows import ComparedInference, ShadowAnswer
from app.plugins.shadow.statistics import PairedScores, losing, needed_images, pair
from tests.support.data.recorded_rows import recorded_inference

_stats: Any = scipy.stats
Records = Sequence[dict[str, object]]


def _paired(both: int, only_champion: int, only_shadow: int, neither: int) -> PairedScores:
    """Return the scores of numbers of images, by the version that is right."""
    rows = ((True, True), (True, False), (False, True), (False, False))
    pairs = np.repeat(np.array(rows), (both, only_champion, only_shadow, neither), axis=0)
    return pair(*(np.stack([hits, ~hits, ~hits], axis=1).astype(np.float64) for hits in pairs.T))


def test_interval_of_a_difference_is_newcombes_widened_by_one_image() -> None:
    # Newcombe 1998, table III, method 10: 36 pairs are right, 12 and 2 only once, none is wrong.
    difference = _paired(36, 2, 12, 0).difference()
    assert difference.value == pytest.approx(0.2)
    assert difference.low == pytest.approx(0.0569 - 1 / 50, abs=5e-5)
    assert difference.high == pytest.approx(0.3404 + 1 / 50, abs=5e-5)


def test_interval_is_narrower_where_both_versions_are_right_about_the_same_images() -> None:
    both, only_champion, only_shadow, neither = 60, 5, 8, 27
    scores = _paired(both, only_champion, only_shadow, neither)
    first, second = wilson(0.65, 100), wilson(0.68, 100)
    product = both * neither - only_champion * only_shadow - 100 / 2
    correlation = product / math.sqrt(65 * 35 * 68 * 32)
    below, above = second.value - second.low, first.high - first.value
    expected = 0.03 - math.sqrt(below**2 - 2 * correlation * below * above + above**2)
    assert scores.difference().low == pytest.approx(expected - 1 / 100)


@pytest.mark.parametrize("count", [1, 3, 30, 300])
def test_interval_has_a_width_where_nothing_differs(count: int) -> None:
    for right in {count, count * 9 // 10, 0}:
        difference = _paired(right, 0, 0, count - right).difference()
        assert difference.value == 0
        assert 1 / count <= -difference.low <= 1
    found = np.full((count, 3), (4.0, 0.0, 0.0))
    assert pair(found, found).difference().low <= -0.5 / count


def test_interval_of_objects_counts_images_and_not_their_copies() -> None:
    rng = np.random.default_rng(0)
    hits = (rng.uniform(size=(2, 60)) < 0.8).astype(np.float64)
    single = [np.stack([right, 1 - right, 1 - right], axis=1) for right in hits]
    width, other = (
        one.high - one.low for one in (pair(*single).difference(), pair(*(8 * one for one in single)).difference())
    )
    assert other == pytest.approx(width, abs=2.1 / 60)


def test_needed_images_narrow_the_interval_to_the_margin() -> None:
    scores = _paired(850, 20, 20, 110)
    needed = needed_images(scores, 0.01)
    assert needed > 1000
    half = [(one.high - one.low) / 2 for one in (scores.difference(count) for count in (needed, needed - 1))]
    assert half[0] <= 0.01 < half[1]
    assert needed_images(scores, 0.5) == 1000


def test_nothing_to_find_and_nothing_found_is_right() -> None:
    scores = pair(np.zeros((1, 3)), np.zeros((1, 3)))
    assert (scores.champion, scores.shadow) == (1.0, 1.0)


def test_more_classes_need_more_evidence_of_a_loss() -> None:
    clear, weak, none = _paired(20, 70, 0, 10), _paired(60, 14, 1, 25), _paired(80, 10, 10, 0)
    assert losing({"a": weak}, 0.05) == ["a"]
    assert losing({"a": weak, "b": none, "c": none, "d": none}, 0.05) == []
    assert losing({"a": weak, "b": clear}, 0.05) == ["b", "a"]


def _judge(count: int, worse: int) -> ShadowVerdict:
    """Return the verdict on images; the shadow version gets `worse` of them wrong."""
    right, wrong = {"cat": (1, 0, 0)}, {"cat": (0, 0, 1), "dog": (0, 1, 0)}
    return shadow_verdict([(right, wrong if n < worse else right) for n in range(count)], 0.01)


def test_few_truths_approve_nothing() -> None:
    for count in (1, 3, 29):
        verdict = _judge(count, 0)
        assert verdict.reasons[0] == f"at least 30 images with truths are needed, and there are {count}"
        assert verdict.needed > 30
    few = _judge(100, 0)
    assert few.reasons[0].startswith("the loss may be 0.0")
    assert few.needed > 300
    enough = _judge(few.needed, 0)
    assert (enough.reasons, enough.needed) == ([], 0)


def _box(label: str, left: float, score: float | None = None) -> dict[str, object]:
    scores = {} if score is None else {"score": score}
    return {"label": label, **scores, "xmin": left, "ymin": 0.0, "xmax": left + 10, "ymax": 10.0}


def _judged(truth: Truth | None, before: Records, after: Records, task: str = "OBJECT_DETECTION") -> Any:
    """Return what champion and shadow version find; None if that cannot be compared with the truth."""
    answer = ShadowAnswer(version="2", agreed=True, records=after)
    image = RecordedImage(digest="d", width=100, height=100, size=1)
    inference = recorded_inference("a-0-0", task_type=task, records=before, image=image, truth=truth)
    return judge_image(ComparedInference(inference=inference, answer=answer))


def test_objects_are_matched_with_those_of_the_truth() -> None:
    truth = Truth(verdict="wrong", records=[_box("cat", 0), _box("cat", 50), _box("dog", 80)], complete=True)
    before = [_box("cat", 0, 0.9), _box("cat", 1, 0.8), _box("emu", 80, 0.7)]
    after = [_box("cat", 0, 0.5), _box("cat", 51, 0.9), _box("dog", 80, 0.6)]
    champion, shadow = _judged(truth, before, after)
    assert champion == {"cat": (1, 1, 1), "dog": (0, 0, 1), "emu": (0, 1, 0)}
    assert shadow == {"cat": (2, 0, 0), "dog": (1, 0, 0)}


def test_verdict_alone_makes_a_right_answer_the_truth() -> None:
    before: Records = [{"label": "cat", "score": 0.9}, {"label": "dog", "score": 0.1}]
    after: Records = [{"label": "dog", "score": 0.6}, {"label": "cat", "score": 0.4}]
    task = "IMAGE_CLASSIFICATION"
    champion, shadow = _judged(Truth(verdict="right"), before, after, task)
    assert champion == {"cat": (1, 0, 0)}
    assert shadow == {"cat": (0, 0, 1), "dog": (0, 1, 0)}
    assert _judged(Truth(verdict="wrong"), before, after, task) is None
    assert _judged(None, before, after, task) is None
    # Neither does an incomplete one decide.
    assert _judged(Truth(verdict="wrong", records=[_box("cat", 0)]), [], []) is None
    cats = [_box("cat", 0), _box("cat", 50)]
    assert _judged(Truth(verdict="right", records=cats[:1]), cats, cats[:1]) is None


def test_redacted_answers_cannot_be_compared() -> None:
    truth = Truth(verdict="wrong", records=[_box("cat", 0)], complete=True)
    with pytest.raises(ValueError, match="score: Expected `float`, got `str`"):
        _judged(truth, [{**_box("cat", 0), "score": "[redacted]"}], [])
