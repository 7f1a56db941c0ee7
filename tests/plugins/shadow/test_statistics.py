"""Statistics of pairs, against SciPy, and the comparison of both answers with a truth."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import scipy.stats

from app.plugins.recording.inference import RecordedImage, Truth
from app.plugins.shadow.report import judge
from app.plugins.shadow.rows import ShadowRow
from app.plugins.shadow.statistics import compare, losing, mcnemar, needed_images
from tests.support.data.recorded_rows import recorded_inference

_stats: Any = scipy.stats
Records = Sequence[dict[str, object]]


@pytest.mark.parametrize(
    ("only_champion", "only_shadow"), [(0, 0), (3, 9), (12, 12), (1, 0), (24, 0), (20, 5), (50, 50), (300, 220)]
)
def test_p_value_is_exact_for_few_unequal_pairs_and_corrected_for_many(only_champion: int, only_shadow: int) -> None:
    count = only_champion + only_shadow
    if count < 25:
        expected = _stats.binomtest(only_champion, count, 0.5).pvalue if count else 1.0
    else:
        expected = _stats.chi2.sf(max(0, abs(only_champion - only_shadow) - 1) ** 2 / count, 1)
    assert mcnemar(only_champion, only_shadow) == pytest.approx(expected)


def test_interval_of_a_difference_is_that_of_paired_images() -> None:
    rng = np.random.default_rng(0)
    champion = rng.uniform(size=800) < 0.8
    shadow = np.where(rng.uniform(size=800) < 0.9, champion, ~champion)
    counts = [np.stack([hits, ~hits, ~hits], axis=1).astype(np.float64) for hits in (champion, shadow)]
    comparison, _ = compare(*counts)
    reference = _stats.bootstrap(
        (shadow.astype(float) - champion,), np.mean, n_resamples=2000, method="percentile", random_state=1
    ).confidence_interval
    assert comparison.champion == pytest.approx(champion.mean())
    assert comparison.difference.value == pytest.approx(shadow.mean() - champion.mean())
    assert comparison.difference.low == pytest.approx(reference.low, abs=0.004)
    assert comparison.difference.high == pytest.approx(reference.high, abs=0.004)
    half = (comparison.difference.high - comparison.difference.low) / 2
    assert needed_images(*counts, margin=half) == pytest.approx(800, rel=0.1)


def test_nothing_to_find_and_nothing_found_is_right() -> None:
    comparison, _ = compare(np.zeros((1, 3)), np.zeros((1, 3)))
    assert (comparison.champion, comparison.shadow) == (1.0, 1.0)


def test_more_classes_need_more_evidence_of_a_loss() -> None:
    clear, weak, none = np.full(100, -0.2), np.linspace(-0.2, -0.045, 100), np.zeros(100)
    assert losing({"a": weak}, 0.05) == ["a"]
    assert losing({"a": weak, "b": none, "c": none}, 0.05) == []
    assert losing({"a": weak, "b": clear}, 0.05) == ["b", "a"]


def _box(label: str, left: float, score: float | None = None) -> dict[str, object]:
    scores = {} if score is None else {"score": score}
    return {"label": label, **scores, "xmin": left, "ymin": 0.0, "xmax": left + 10, "ymax": 10.0}


def _judged(truth: Truth | None, before: Records, after: Records, task: str = "OBJECT_DETECTION") -> Any:
    """Return what champion and shadow version find; None if that cannot be compared with the truth."""
    records = msgspec.json.encode(after).decode()
    row = ShadowRow(id="a-0-0", version="2", model="m", champion="1", time=1, agreed=True, records=records)
    image = RecordedImage(digest="d", width=100, height=100, size=1)
    judged = judge(row, recorded_inference("a-0-0", task_type=task, records=before, image=image, truth=truth))
    return judged and (judged.champion, judged.shadow)


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
    with pytest.raises(ValueError, match="score: Expected a finite number"):
        _judged(truth, [{**_box("cat", 0), "score": "[redacted]"}], [])
