"""Measure classification with valor-lite."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import import_optional
from app.plugins.evaluation.metrics.intervals import format_interval, wilson
from app.plugins.evaluation.report import Confusion, Measures, Mistake, figures_of, slice_tables
from app.report import Table

_NONE = "(nothing)"
"""The class of an image without a predicted class."""
_EXAMPLES = 5
_TITLES = {
    "accuracy": "accuracy",
    "top5_accuracy": "accuracy of the best five",
    "precision": "precision, mean of the classes",
    "recall": "recall, mean of the classes",
    "f1": "F1, mean of the classes",
    "roc_auc": "ROC AUC, mean of the classes",
}


def measure_classes(results: Sequence[EvaluatedItem], slices: Sequence[str] = ()) -> Measures:
    """Measure the best class of each image, and how its score separates it from the others."""
    if not results:
        return Measures(figures=figures_of({}, _TITLES), notes=("Nothing was answered: nothing to measure.",))
    values, classes = _measure(results)
    columns = ("images", "accuracy", "top 5", "precision", "recall", "F1", "ROC AUC")
    # Measure each slice alone: for a filter, valor-lite divides the accuracy by all images.
    slice_table = slice_tables(
        results, slices, columns, lambda indexes: _measure([results[index] for index in indexes])[0].values()
    )
    notes = [f"Accuracy: {format_interval(wilson(values['accuracy'] or 0.0, len(results)))}."]
    if values["roc_auc"] is None:
        notes.append(
            "ROC AUC needs the scores of the same two or more classes for every image, so it is undefined here."
        )
    if unpredicted := sum(_best_label(result) == _NONE for result in results):
        notes.append(f"{unpredicted} images were given no class; they count as wrong, as {_NONE}.")
    return Measures(
        figures=figures_of(values, _TITLES),
        tables=(classes, *slice_table),
        confusion=_confusion(results),
        mistakes=_mistakes(results),
        notes=tuple(notes),
    )


def _measure(results: Sequence[EvaluatedItem]) -> tuple[Mapping[str, float | None], Table]:
    """Return the figures by their names, and the table of the classes that images have."""
    valor = import_optional("valor_lite.classification")
    loader = valor.Loader.in_memory()
    loader.add_data([_classification(valor, str(index), result) for index, result in enumerate(results)])
    evaluator = loader.finalize()
    metrics = {kind.value: values for kind, values in evaluator.compute_precision_recall().items()}
    support = Counter(result.item.label for result in results)
    labels = sorted(support)
    by_label = [_by_label(metrics[name]) for name in ("Precision", "Recall", "F1")]
    rates = [[values[label] for label in labels] for values in by_label]
    areas = _roc_areas(evaluator, results)
    rows = zip(labels, (support[label] for label in labels), *rates, map(areas.get, labels), strict=True)
    values = {
        "accuracy": float(metrics["Accuracy"][0].value),
        "top5_accuracy": sum(map(_is_in_top5, results)) / len(results),
        **{name: sum(column) / len(labels) for name, column in zip(("precision", "recall", "f1"), rates, strict=True)},
        "roc_auc": sum(areas.values()) / len(areas) if areas else None,
    }
    columns = ("class", "images", "precision", "recall", "F1", "ROC AUC")
    return values, Table(title="Classes", columns=columns, rows=tuple(rows), printed=False)


def _classification(valor: Any, uid: str, result: EvaluatedItem) -> Any:
    # valor-lite rejects an image without a class, and ignores scores of 0: the accuracy would not count the image.
    scores = {**_scores(result), **({_NONE: 1.0} if _best_label(result) == _NONE else {})}
    return valor.Classification(
        uid=uid, groundtruth=result.item.label, predictions=[*scores], scores=[*scores.values()]
    )


def _roc_areas(evaluator: Any, results: Sequence[EvaluatedItem]) -> Mapping[str, float]:
    """Return the ROC AUC of each class that is true for some images but not for all, where it is defined."""
    predicted = {frozenset(_scores(result)) for result in results}
    if len(predicted) != 1 or len(next(iter(predicted))) < 2:
        return {}
    metrics = {kind.value: values for kind, values in evaluator.compute_rocauc().items()}
    areas = _by_label(metrics["ROCAUC"])
    support = Counter(result.item.label for result in results)
    return {label: areas[label] for label, count in support.items() if label in areas and count < len(results)}


def _by_label(metrics: Sequence[Any]) -> Mapping[str, float]:
    return {metric.parameters["label"]: float(metric.value) for metric in metrics}


def _confusion(results: Sequence[EvaluatedItem]) -> Confusion:
    images = defaultdict[tuple[str, str], list[str]](list)
    for result in results:
        images[result.item.label, _best_label(result)].append(result.item.id)
    labels = tuple(sorted({label for pair in images for label in pair}))
    return Confusion(
        labels=labels,
        counts=tuple(tuple(len(images.get((true, best), ())) for best in labels) for true in labels),
        examples={
            f"{true} -> {best}": tuple(names[:_EXAMPLES]) for (true, best), names in images.items() if true != best
        },
    )


def _mistakes(results: Sequence[EvaluatedItem]) -> tuple[Mistake, ...]:
    mistakes: list[Mistake] = []
    for result in results:
        label, best, scores = result.item.label, _best_label(result), _scores(result)
        if best == _NONE:
            mistakes.append(Mistake(result=result, severity=1, description=f"{label}, nothing was found"))
        elif best != label:
            true_score = scores.get(label, 0.0)
            description = f"{label} ({true_score:.2f}) was taken for {best} ({scores[best]:.2f})"
            mistakes.append(Mistake(result=result, severity=scores[best] - true_score, description=description))
    return tuple(sorted(mistakes, key=lambda mistake: -mistake.severity))


def _scores(result: EvaluatedItem) -> Mapping[str, float]:
    """Return the highest score of each predicted label, in the order of the answer."""
    scores: dict[str, float] = {}
    for prediction in result.predictions:
        scores[prediction.label] = max(prediction.score, scores.get(prediction.label, 0.0))
    return scores


def _best_label(result: EvaluatedItem) -> str:
    """Return the label of the highest score, the first of equal ones; `_NONE` if no score is above 0."""
    scores = _scores(result)
    best = max(scores, key=scores.__getitem__, default=_NONE)
    return best if scores.get(best) else _NONE


def _is_in_top5(result: EvaluatedItem) -> bool:
    """Return whether the label is among the best. Of equal scores the last by name counts, as in scikit-learn."""
    scores, label = _scores(result), result.item.label
    return label in sorted(scores, key=lambda label: (scores[label], label), reverse=True)[:5] and scores[label] > 0
