"""Measure semantic segmentation with valor-lite: the class of each pixel, regardless of its object."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.evaluation.answers import EvaluatedItem
from app.evaluation.dataset import Ring
from app.evaluation.extras import import_optional
from app.evaluation.report import Figure, Table
from tasks.vision.contours import mask_of_contours

__all__ = ("measure_pixels",)

_MAX_PIXELS = 1 << 28
"""Maximum size of an image, so that its masks fit into memory."""


def measure_pixels(
    results: Sequence[EvaluatedItem], labels: Sequence[str], confidence: float
) -> tuple[tuple[Figure, ...], Table | None, tuple[str, ...]]:
    """Measure the accuracy of all pixels, including background, and the IoU of the classes.

    Args:
        results: items and predictions with the dataset's labels; unknown labels are background.
        labels: the labels of the dataset.
        confidence: predictions with a lower score are skipped. Among overlapping ones, the best gets the pixel.

    Returns:
        The figures, a table of the classes, and sentences about skipped images.
    """
    valor = import_optional("valor_lite.semantic_segmentation")
    loader = valor.Loader.in_memory()
    numbers = {label: number for number, label in enumerate(labels, 1)}
    measurable = [result for result in results if 0 < result.item.width * result.item.height <= _MAX_PIXELS]
    large = len(results) - len(measurable)
    notes = (f"{large} images of more than {_MAX_PIXELS} pixels are in no figure of pixels.",) if large else ()
    if not measurable or not labels:
        return (_figure("pixel_accuracy", None), _figure("miou", None)), None, notes
    for index, result in enumerate(measurable):
        truth = np.zeros((result.item.height, result.item.width), np.uint16)
        predicted = np.zeros_like(truth)
        for labelled in result.item.objects:
            _draw(truth, labelled.rings or (), numbers[labelled.label], even_odd=labelled.even_odd)
        for prediction in sorted(result.predictions, key=lambda prediction: prediction.score):
            if prediction.score >= confidence:
                _draw(predicted, prediction.rings or (), numbers.get(prediction.label, 0), even_odd=True)
        ignored = np.zeros_like(truth)
        for labelled in result.item.objects:
            if labelled.ignored:
                _draw(ignored, labelled.rings or (), 1, even_odd=labelled.even_odd)
        truth[ignored > 0] = predicted[ignored > 0] = 0
        loader.add_data(
            [valor.Segmentation(uid=str(index), groundtruths=truth, predictions=predicted, labels=[*labels])]
        )
    return *_measure(loader.finalize(), measurable, labels), notes


def _measure(
    evaluator: Any, results: Sequence[EvaluatedItem], labels: Sequence[str]
) -> tuple[tuple[Figure, ...], Table | None]:
    metrics = {kind.value: values for kind, values in evaluator.compute_precision_recall_iou().items()}
    rates = {
        name: {metric.parameters["label"]: float(metric.value) for metric in metrics[name]}
        for name in ("IOU", "Precision", "Recall")
    }
    # Compute the mean here: valor-lite counts absent classes as 0.
    occurring = {labelled.label for result in results for labelled in result.item.objects}
    occurring |= {prediction.label for result in results for prediction in result.predictions}
    present = [label for label in labels if label in occurring]
    mean = sum(rates["IOU"][label] for label in present) / len(present) if present else None
    rows = tuple((label, *(rates[name][label] for name in rates)) for label in sorted(present))
    figures = (_figure("pixel_accuracy", float(metrics["Accuracy"][0].value)), _figure("miou", mean))
    return figures, Table(title="Pixels of classes", columns=("class", "IoU", "precision", "recall"), rows=rows)


def _figure(name: str, value: float | None) -> Figure:
    titles = {"pixel_accuracy": "pixel accuracy, background included", "miou": "mean IoU of the pixels of classes"}
    return Figure(name=name, title=titles[name], value=value)


def _draw(canvas: NDArray[np.uint16], rings: Sequence[Ring], number: int, *, even_odd: bool) -> None:
    contours = [np.array(ring, np.float32).reshape(-1, 2) for ring in rings if ring]
    height, width = canvas.shape
    if even_odd:
        canvas[mask_of_contours(contours, width, height) > 0] = number
    else:
        for contour in contours:
            cv2.fillPoly(canvas, [np.rint(contour).astype(np.int32).reshape(-1, 1, 2)], number)
