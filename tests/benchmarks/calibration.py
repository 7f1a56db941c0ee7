"""Print figures of calibration beside those of scikit-learn and SciPy, and the error of demo models on many splits.

The program fails if a figure differs from its reference. Usage: ``python -m tests.benchmarks.calibration`` (a minute).
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import scipy.optimize
import sklearn.calibration
import sklearn.linear_model
import sklearn.metrics
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.plugins.calibration.evaluation.fit import ScoredOutcomes, events_of, fit, in_first_half, outcome_events
from app.plugins.calibration.evaluation.report import BINS, measure
from app.plugins.calibration.fitting import Floats, fit_platt, fit_temperature, log_odds, softmax
from app.plugins.evaluation.answers import EvaluatedItem, parse_records
from app.plugins.evaluation.dataset import Item, LabelledObject
from app.plugins.in_process.model import InProcessModel
from fixtures.scenes import CLASSIFY, DETECT, Scene, make_scenes
from tasks.task import TaskType

Figures = Mapping[str, float]

_MODELS = Path(__file__).parents[2] / "fixtures" / "models"
_TOLERANCE = 1e-4
_FACTOR = 2.5
_SPLITS = 20


def main() -> None:
    """Print three tables, and fail when a figure differs from the reference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console, equal = Console(width=140), True
    fits = "fits of 500 images with 10 classes, and of 500 objects"
    for title, (own, reference) in {"2,000 events": _measured(options.seed), fits: _fitted(options.seed)}.items():
        table = Table("tool", *own, title=title)
        table.add_row("charioteer", *(f"{value:.4f}" for value in own.values()))
        table.add_row("scikit-learn, SciPy", *(f"{reference[name]:.4f}" for name in own))
        console.print(table)
        equal &= all(abs(value - reference[name]) <= _TOLERANCE * max(1, abs(value)) for name, value in own.items())
    splits = Table("model", "scores", "ECE", "Brier", "splits with lower ECE", "with lower Brier")
    splits.title = f"means of {_SPLITS} splits of {options.scenes} scenes"
    classifier, detector = (CLASSIFY, TaskType.IMAGE_CLASSIFICATION), (DETECT, TaskType.OBJECT_DETECTION)
    for name, (recipe, task) in {"classifier": classifier, "detector": detector}.items():
        for row in _split(name, task, make_scenes(options.seed, recipe, options.scenes)):
            splits.add_row(*row)
    console.print(splits)
    sys.exit(not equal)


def _measured(seed: int) -> tuple[Figures, Figures]:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0, 1, 2000)
    correct = rng.uniform(size=2000) < scores**2
    outcomes = ScoredOutcomes(images=np.arange(2000), labels=["cat"] * 2000, scores=scores, correct=correct)
    measured = measure(outcome_events(outcomes, None))
    frequency, confidence = sklearn.calibration.calibration_curve(correct, scores, n_bins=BINS)
    counts = np.histogram(scores, np.linspace(0, 1, BINS + 1))[0]
    reference = {
        "ece": float((counts[counts > 0] * np.abs(frequency - confidence)).sum() / 2000),
        "brier": float(sklearn.metrics.brier_score_loss(correct, scores)),
        "log_loss": float(sklearn.metrics.log_loss(correct, scores)),
    }
    return {"ece": measured.ece.value, "brier": measured.brier.value, "log_loss": measured.loss}, reference


def _fitted(seed: int) -> tuple[Figures, Figures]:
    rng = np.random.default_rng(seed)
    calibrated = rng.normal(0, 1.5, (500, 10))
    truth: NDArray[np.intp] = np.array([rng.choice(10, p=row) for row in softmax(calibrated)])
    logits = _FACTOR * calibrated

    targets = np.full((500, 10), 1 / 502 / 9)
    targets[np.arange(500), truth] = 1 - 1 / 502

    def loss(temperature: float) -> float:
        return -float((targets * np.log(softmax(logits / temperature))).sum(axis=1).mean())

    scores = rng.uniform(0.05, 1, 500)
    outcomes: NDArray[np.bool_] = rng.uniform(size=500) < scores**2
    slope, intercept = fit_platt(log_odds(scores), outcomes)
    best = scipy.optimize.minimize_scalar(loss, bounds=(0.1, 10), method="bounded", options={"xatol": 1e-9})
    line = _logistic_regression(log_odds(scores), outcomes)
    own = {"temperature": fit_temperature(logits, truth), "slope": slope, "intercept": intercept}
    return own, {"temperature": float(best.x), "slope": line[0], "intercept": line[1]}


def _logistic_regression(values: Floats, outcomes: NDArray[np.bool_]) -> tuple[float, float]:
    """Return slope and intercept for Platt's targets, which are weights of two opposite examples."""
    positives, count = int(outcomes.sum()), len(outcomes)
    targets = np.where(outcomes, (positives + 1) / (positives + 2), 1 / (count - positives + 2))
    weights = np.concatenate([targets, 1 - targets])
    model = sklearn.linear_model.LogisticRegression(C=np.inf, tol=1e-10)
    model.fit(np.tile(values, 2)[:, np.newaxis], np.repeat([1, 0], count), weights)
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def _split(name: str, task: TaskType, scenes: Iterable[Scene]) -> Sequence[Sequence[str]]:
    model = InProcessModel(_MODELS / name)
    results = [_result(model, task, scene, index) for index, scene in enumerate(scenes)]
    names = sorted({found.label for result in results for found in (*result.item.objects, *result.predictions)})
    figures: dict[str, list[tuple[float, float]]] = {"before": [], "after": []}
    for split in range(_SPLITS):
        halves: tuple[list[EvaluatedItem], list[EvaluatedItem]] = [], []
        for result in results:
            halves[not in_first_half(result.item.id.encode(), bytes([split]))].append(result)
        calibration = fit(halves[0], names, task)
        for scores, used in (("before", None), ("after", calibration)):
            measured = measure(events_of(halves[1], names, task, used))
            figures[scores].append((measured.ece.value, measured.brier.value))
    before, after = np.array(figures["before"]), np.array(figures["after"])
    better = [f"{int(column.sum())} of {_SPLITS}" for column in (after < before).T]
    return [
        (name, "before", *(f"{mean:.4f}" for mean in before.mean(axis=0)), "", ""),
        (name, "after", *(f"{mean:.4f}" for mean in after.mean(axis=0)), *better),
    ]


def _result(model: InProcessModel, task: TaskType, scene: Scene, index: int) -> EvaluatedItem:
    height, width = scene.image.shape[:2]
    if task.returns == "objects":
        objects = tuple(LabelledObject(label=found.label, box=found.box) for found in scene.items)
        known, parameters = {"objects": objects}, {"score_threshold": 0.001}
    else:
        known, parameters = {"label": scene.items[0].label}, {}
    item = Item(id=str(index), image=Path(str(index)), width=width, height=height, **known)
    records: Any = msgspec.to_builtins(model.ask(scene.image, **parameters))
    return parse_records(records, item, task)


if __name__ == "__main__":
    main()
