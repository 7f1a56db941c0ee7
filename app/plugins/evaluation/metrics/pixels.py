"""Measure semantic segmentation with valor-lite: the class of each pixel, regardless of its object."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import import_optional
from app.plugins.evaluation.masks import decode_mask, predicted_mask, truth_mask
from app.plugins.evaluation.report import Measures, figures_of
from app.report import Table

_TITLES = {"pixel_accuracy": "pixel accuracy, background included", "miou": "mean IoU of the pixels of classes"}


def measure_pixels(results: Sequence[EvaluatedItem], labels: Sequence[str], confidence: float) -> Measures:
    """Measure the accuracy of all pixels, including background, and the IoU of the classes.

    Labels that the dataset does not have are background. Predictions with a score below `confidence` are skipped. Among
    overlapping ones, the best gets the pixel.
    """
    valor = import_optional("valor_lite.semantic_segmentation")
    loader = valor.Loader.in_memory()
    numbers = {label: number for number, label in enumerate(labels, 1)}
    if not results or not labels:
        return Measures(figures=figures_of({}, _TITLES))
    for index, result in enumerate(results):
        width, height = result.item.width, result.item.height
        truth, predicted = np.zeros((2, height, width), np.uint16)
        for prediction in sorted(result.predictions, key=lambda prediction: prediction.score):
            if prediction.score >= confidence:
                mask = decode_mask(predicted_mask(prediction, width, height))
                predicted[mask > 0] = numbers.get(prediction.label, 0)
        # Ignored objects last: their pixels count as background on both sides.
        for labelled in sorted(result.item.objects, key=lambda labelled: labelled.ignored):
            mask = decode_mask(truth_mask(labelled, width, height)) > 0
            truth[mask] = 0 if labelled.ignored else numbers[labelled.label]
            if labelled.ignored:
                predicted[mask] = 0
        loader.add_data(
            [valor.Segmentation(uid=str(index), groundtruths=truth, predictions=predicted, labels=[*labels])]
        )
    return _measure(loader.finalize(), results, labels)


def _measure(evaluator: Any, results: Sequence[EvaluatedItem], labels: Sequence[str]) -> Measures:
    metrics = {kind.value: values for kind, values in evaluator.compute_precision_recall_iou().items()}
    rates = {
        name: {metric.parameters["label"]: float(metric.value) for metric in metrics[name]}
        for name in ("IOU", "Precision", "Recall")
    }
    # Compute the mean here: valor-lite counts absent classes as 0.
    true = {labelled.label for result in results for labelled in result.item.objects if not labelled.ignored}
    present = [label for label in labels if label in true]
    mean = sum(rates["IOU"][label] for label in present) / len(present) if present else None
    rows = tuple((label, *(rates[name][label] for name in rates)) for label in sorted(present))
    columns = ("class", "IoU", "precision", "recall")
    table = Table(title="Pixels of classes", columns=columns, rows=rows, printed=False)
    values = {"pixel_accuracy": float(metrics["Accuracy"][0].value), "miou": mean}
    return Measures(figures=figures_of(values, _TITLES), tables=(table,))
