"""Fits and figures of calibration, against those of SciPy and scikit-learn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import sklearn.calibration
import sklearn.linear_model
import sklearn.metrics
from numpy.typing import NDArray

from app.plugins.calibration.calibration import Calibration
from app.plugins.calibration.fitting import Floats, fit_platt, fit_temperature, log_odds, softmax
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.calibrating import BINS, Outcome, events_of, measure, object_outcomes
from app.plugins.evaluation.dataset import LabelledObject
from tasks.task import TaskType
from tests.support.data.evaluation_samples import classification_sample, detection_sample, item

_optimize: Any = scipy.optimize
_linear: Any = sklearn.linear_model


def _logits(seed: int) -> tuple[Floats, NDArray[np.intp]]:
    """Return logits of 500 images that are 2.5 times too large for their truths."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (500, 10))
    truth = np.array([rng.choice(10, p=row) for row in softmax(logits)])
    return 2.5 * logits, truth


def test_temperature_is_that_of_the_smallest_loss_and_undoes_a_factor() -> None:
    logits, truth = _logits(0)
    share = 1 / (len(truth) + 2)
    targets = np.full(logits.shape, share / (logits.shape[1] - 1))
    targets[np.arange(len(truth)), truth] = 1 - share

    def loss(log_temperature: float) -> float:
        return -float((targets * np.log(softmax(logits / np.exp(log_temperature)))).sum(axis=1).mean())

    found = _optimize.minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10})
    expected = float(np.exp(found.x))
    assert fit_temperature(logits, truth) == pytest.approx(expected, rel=1e-6)
    assert expected == pytest.approx(2.5, rel=0.1)


def test_answers_without_a_mistake_do_not_become_certain() -> None:
    logits = np.log(np.tile([0.6, 0.4], (50, 1)))
    best = softmax(logits / fit_temperature(logits, np.zeros(50, np.intp)))[0, 0]
    assert best == pytest.approx(1 - 1 / 52)


def test_temperature_ignores_classes_that_an_image_lacks() -> None:
    logits, truth = _logits(1)
    padded = np.concatenate([logits, np.full((len(logits), 3), -np.inf)], axis=1)
    assert fit_temperature(padded, truth) == pytest.approx(fit_temperature(logits, truth), rel=1e-9)


@pytest.mark.parametrize("shift", [-2.0, 0.0, 3.0])
def test_line_equals_scikit_learn(shift: float) -> None:
    rng = np.random.default_rng(2)
    scores = rng.uniform(0.05, 1, 400)
    outcomes = rng.uniform(size=400) < 1 / (1 + np.exp(-(0.4 * log_odds(scores) + shift)))
    positives = int(outcomes.sum())
    targets = np.where(outcomes, (positives + 1) / (positives + 2), 1 / (400 - positives + 2))
    values, weights = np.tile(log_odds(scores), 2)[:, np.newaxis], np.concatenate([targets, 1 - targets])
    reference = _linear.LogisticRegression(C=np.inf, tol=1e-10).fit(values, np.repeat([1, 0], 400), weights)
    expected = float(reference.coef_[0, 0]), float(reference.intercept_[0])
    assert fit_platt(log_odds(scores), outcomes) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_line_of_separated_outcomes_is_finite() -> None:
    slope, intercept = fit_platt(log_odds(np.array([0.1, 0.2, 0.8, 0.9])), np.array([False, False, True, True]))
    assert 0 < slope < 10
    assert abs(intercept) < 1


_calibration: Any = sklearn.calibration
_metrics: Any = sklearn.metrics
BOX = (0.0, 0.0, 10.0, 10.0)


def _events(digits: int = 16) -> Floats:
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.05, 1, 2000).round(digits)
    correct = rng.uniform(size=2000) < scores**2
    results = [
        detection_sample([("cat", BOX)] if is_right else [], [("cat", float(score), BOX)])
        for score, is_right in zip(scores, correct, strict=True)
    ]
    return events_of(results, ["cat"], TaskType.OBJECT_DETECTION, None)


@pytest.mark.parametrize("digits", [16, 1])
def test_figures_equal_scikit_learn(digits: int) -> None:
    events = _events(digits)
    stated, correct, _ = events.T
    error, brier = measure(events)
    frequency, confidence = _calibration.calibration_curve(correct, stated, n_bins=BINS)
    counts = np.histogram(np.digitize(stated, np.linspace(0, 1, BINS + 1)[1:-1], right=True), range(16))[0]
    expected = float((counts[counts > 0] * np.abs(frequency - confidence)).sum() / len(correct))
    assert error == pytest.approx(expected)
    assert brier == pytest.approx(_metrics.brier_score_loss(correct, stated))


def test_classes_count_by_the_best_one_and_squares_by_all() -> None:
    results = [
        classification_sample("cat", {"cat": 0.7, "dog": 0.3}, "a.jpg"),
        classification_sample("fox", {"cat": 0.6, "dog": 0.4}, "b.jpg"),
        classification_sample("dog", {}, "c.jpg"),
    ]
    events = events_of(results, [], TaskType.IMAGE_CLASSIFICATION, None)
    assert events[:, :2].tolist() == [[0.7, 1], [0.6, 0]]
    assert events[:, 2] == pytest.approx([0.18, 0.36 + 0.16 + 1])
    calibration = Calibration(method="temperature", temperature=2.0)
    odds = (0.7 / 0.3) ** 0.5
    assert events_of(results, [], TaskType.IMAGE_CLASSIFICATION, calibration)[0, 0] == pytest.approx(odds / (1 + odds))


def _outcomes(result: EvaluatedItem) -> Sequence[Outcome]:
    return object_outcomes([result], ["cat", "dog"], TaskType.OBJECT_DETECTION)


def test_object_is_right_if_it_gets_a_free_object_of_its_class() -> None:
    near, far = (0.0, 0.0, 10.0, 9.0), (50.0, 50.0, 60.0, 60.0)
    found = [("cat", 0.6, BOX), ("cat", 0.9, near), ("dog", 0.8, BOX), ("emu", 0.7, BOX), ("cat", 0.04, far)]
    result = detection_sample([("cat", BOX)], found)
    assert _outcomes(result) == [("cat", 0.9, True), ("dog", 0.8, False), ("cat", 0.6, False)]
    # What lies in an ignored object is left out.
    crowd = LabelledObject(label="cat", box=(0.0, 0.0, 40.0, 40.0), ignored=True)
    predictions = detection_sample([], [("cat", 0.9, BOX), ("cat", 0.8, far)]).predictions
    assert _outcomes(EvaluatedItem(item=item(objects=[crowd]), predictions=predictions)) == [("cat", 0.8, False)]
