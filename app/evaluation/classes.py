"""Measure classification with valor-lite."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.evaluation.answers import EvaluatedItem, PredictedObject
from app.evaluation.extras import import_optional
from app.evaluation.report import Confusion, Figure, Measures, Mistake, Table
from app.evaluation.slices import NO_VALUE

__all__ = ("measure_classes",)

_NONE = "(nothing)"
"""The class of an image without a predicted class."""
_TOP = 5
_EXAMPLES = 5


def measure_classes(results: Sequence[EvaluatedItem], slices: Sequence[str] = ()) -> Measures:
    """Measure the best class of each image, and how its score separates it from the others.

    Args:
        results: with labels of the dataset.
        slices: keys of metadata.

    Raises:
        EvaluationError: when the extra is not installed.
    """
    if not results:
        return Measures(figures=_figures(dict.fromkeys(_TITLES)), notes=("Nothing was answered: nothing to measure.",))
    values, classes, confusion = _measure(results)
    tables = [classes]
    if slices:
        tables.append(_slices(results, slices))
    notes: list[str] = []
    if values["roc_auc"] is None:
        notes.append(
            "ROC AUC needs the scores of the same two or more classes for every image, so it is undefined here."
        )
    if unpredicted := sum(_top(result) is None for result in results):
        notes.append(f"{unpredicted} images were given no class; they count as wrong, as {_NONE}.")
    return Measures(
        figures=_figures(values),
        tables=tuple(tables),
        confusion=confusion,
        mistakes=_mistakes(results),
        notes=tuple(notes),
    )


_TITLES = {
    "accuracy": "accuracy",
    "top5_accuracy": "accuracy of the best five",
    "precision": "precision, mean of the classes",
    "recall": "recall, mean of the classes",
    "f1": "F1, mean of the classes",
    "roc_auc": "ROC AUC, mean of the classes",
}


def _figures(values: Mapping[str, float | None]) -> tuple[Figure, ...]:
    return tuple(Figure(name=name, title=title, value=values[name]) for name, title in _TITLES.items())


def _measure(results: Sequence[EvaluatedItem]) -> tuple[Mapping[str, float | None], Table, Confusion]:
    valor = import_optional("valor_lite.classification")
    loader = valor.Loader.in_memory()
    loader.add_data([_classification(valor, str(index), result) for index, result in enumerate(results)])
    evaluator = loader.finalize()
    metrics = {kind.value: values for kind, values in evaluator.compute_precision_recall().items()}
    rates = {
        name: {metric.parameters["label"]: metric.value for metric in metrics[name]}
        for name in ("Precision", "Recall", "F1")
    }
    support = Counter(result.item.label for result in results)
    labels = sorted(support)
    areas = _roc_areas(evaluator, results)
    rows = [
        (label, support[label], *(rates[name][label] for name in rates), areas.get(label) if areas else None)
        for label in labels
    ]
    values = {
        "accuracy": float(metrics["Accuracy"][0].value),
        "top5_accuracy": sum(_is_in_top(result, _TOP) for result in results) / len(results),
        "precision": _mean([rates["Precision"][label] for label in labels]),
        "recall": _mean([rates["Recall"][label] for label in labels]),
        "f1": _mean([rates["F1"][label] for label in labels]),
        "roc_auc": _mean([areas[label] for label in labels if label in areas]),
    }
    columns = ("class", "images", "precision", "recall", "F1", "ROC AUC")
    (matrix,) = evaluator.compute_confusion_matrix()
    return values, Table(title="Classes", columns=columns, rows=tuple(rows)), _confusion(matrix.value, results)


def _classification(valor: Any, uid: str, result: EvaluatedItem) -> Any:
    # valor-lite rejects an image without a class, and the accuracy would then not count it.
    # Sort the best first: valor-lite takes the first of equal scores, and ignores scores of 0.
    scores: dict[str, float] = {}
    for candidate in _ranked(result):
        scores.setdefault(candidate.label, candidate.score)
    if _top(result) is None:
        scores[_NONE] = 1.0
    return valor.Classification(
        uid=uid, groundtruth=result.item.label, predictions=[*scores], scores=[*scores.values()]
    )


def _roc_areas(evaluator: Any, results: Sequence[EvaluatedItem]) -> Mapping[str, float]:
    """Return the ROC AUC of each class that is true for some images but not for all, where it is defined."""
    label_sets = {frozenset(prediction.label for prediction in result.predictions) for result in results}
    if len(label_sets) != 1 or len(next(iter(label_sets))) < 2:
        return {}
    support = Counter(result.item.label for result in results)
    (labels,) = label_sets
    metrics = {kind.value: values for kind, values in evaluator.compute_rocauc().items()}
    areas = {metric.parameters["label"]: float(metric.value) for metric in metrics["ROCAUC"]}
    return {label: areas[label] for label, count in support.items() if label in labels and count < len(results)}


def _confusion(value: Mapping[str, Any], results: Sequence[EvaluatedItem]) -> Confusion:
    matrix = value["confusion_matrix"]
    true, predicted = ({result.item.label for result in results}, {_best_label(result) for result in results})
    labels = tuple(sorted(true | predicted))
    examples: dict[str, list[str]] = {}
    for result in results:
        best = _best_label(result)
        if best != result.item.label:
            examples.setdefault(f"{result.item.label} -> {best}", []).append(result.item.id)
    return Confusion(
        labels=labels,
        counts=tuple(tuple(matrix[truth][prediction] for prediction in labels) for truth in labels),
        examples={cell: tuple(names[:_EXAMPLES]) for cell, names in examples.items()},
    )


def _slices(results: Sequence[EvaluatedItem], slices: Sequence[str]) -> Table:
    """Evaluate each slice separately: for a filter, valor-lite divides the accuracy by all images."""
    rows: list[tuple[str | float | int | None, ...]] = []
    for key in slices:
        for value in sorted({result.item.metadata.get(key, NO_VALUE) for result in results}):
            slice_results = [result for result in results if result.item.metadata.get(key, NO_VALUE) == value]
            values, _, _ = _measure(slice_results)
            rows.append((f"{key} = {value}", len(slice_results), *(values[name] for name in _TITLES)))
    columns = ("slice", "images", "accuracy", "top 5", "precision", "recall", "F1", "ROC AUC")
    return Table(title="Slices", columns=columns, rows=tuple(rows))


def _mistakes(results: Sequence[EvaluatedItem]) -> tuple[Mistake, ...]:
    mistakes: list[Mistake] = []
    for result in results:
        best = _top(result)
        if best is None:
            mistakes.append(Mistake(result=result, badness=1, why=f"{result.item.label}, nothing was found"))
        elif best.label != result.item.label:
            true_score = max(
                (prediction.score for prediction in result.predictions if prediction.label == result.item.label),
                default=0.0,
            )
            explanation = f"{result.item.label} ({true_score:.2f}) was taken for {best.label} ({best.score:.2f})"
            mistakes.append(Mistake(result=result, badness=best.score - true_score, why=explanation))
    return tuple(sorted(mistakes, key=lambda mistake: -mistake.badness))


def _best_label(result: EvaluatedItem) -> str:
    best = _top(result)
    return best.label if best else _NONE


def _top(result: EvaluatedItem) -> PredictedObject | None:
    """Return the best class of an image, the first of equal ones; None if no score is above 0."""
    return next((prediction for prediction in _ranked(result)[:1] if prediction.score > 0), None)


def _ranked(result: EvaluatedItem) -> Sequence[PredictedObject]:
    return sorted(result.predictions, key=lambda prediction: -prediction.score)


def _is_in_top(result: EvaluatedItem, count: int) -> bool:
    return result.item.label in (prediction.label for prediction in _ranked(result)[:count] if prediction.score > 0)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
