"""Measure semantic segmentation with valor-lite: the class of each pixel, regardless of its object."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.evaluation.answers import Answered
from app.evaluation.dataset import Ring
from app.evaluation.extras import needed
from app.evaluation.report import Figure, Table
from tasks.vision.contours import mask_of_contours

__all__ = ("measure_pixels",)

_MAX_PIXELS = 1 << 28
"""Maximum size of an image, so that its masks fit into memory."""


def measure_pixels(
    answered: Sequence[Answered], labels: Sequence[str], confidence: float
) -> tuple[tuple[Figure, ...], Table | None, tuple[str, ...]]:
    """Measure the accuracy of all pixels, including background, and the IoU of the classes.

    Args:
        answered: items and predictions with the dataset's labels; unknown labels are background.
        labels: the labels of the dataset.
        confidence: predictions with a lower score are skipped. Among overlapping ones, the best gets the pixel.

    Returns:
        The figures, a table of the classes, and sentences about skipped images.
    """
    valor = needed("valor_lite.semantic_segmentation")
    loader = valor.Loader.in_memory()
    numbers = {label: number for number, label in enumerate(labels, 1)}
    shown = [result for result in answered if 0 < result.item.width * result.item.height <= _MAX_PIXELS]
    large = len(answered) - len(shown)
    notes = (f"{large} images of more than {_MAX_PIXELS} pixels are in no figure of pixels.",) if large else ()
    if not shown or not labels:
        return (_figure("pixel_accuracy", None), _figure("miou", None)), None, notes
    for index, result in enumerate(shown):
        truth = np.zeros((result.item.height, result.item.width), np.uint16)
        found = np.zeros_like(truth)
        for one in result.item.objects:
            _draw(truth, one.rings or (), numbers[one.label], even_odd=one.even_odd)
        for guess in sorted(result.found, key=lambda guess: guess.score):
            if guess.score >= confidence:
                _draw(found, guess.rings or (), numbers.get(guess.label, 0), even_odd=True)
        hidden = np.zeros_like(truth)
        for one in result.item.objects:
            if one.ignored:
                _draw(hidden, one.rings or (), 1, even_odd=one.even_odd)
        truth[hidden > 0] = found[hidden > 0] = 0
        loader.add_data([valor.Segmentation(uid=str(index), groundtruths=truth, predictions=found, labels=[*labels])])
    return *_measured(loader.finalize(), shown, labels), notes


def _measured(
    evaluator: Any, answered: Sequence[Answered], labels: Sequence[str]
) -> tuple[tuple[Figure, ...], Table | None]:
    metrics = {kind.value: values for kind, values in evaluator.compute_precision_recall_iou().items()}
    rates = {
        name: {metric.parameters["label"]: float(metric.value) for metric in metrics[name]}
        for name in ("IOU", "Precision", "Recall")
    }
    # Compute the mean here: valor-lite counts absent classes as 0.
    seen = {one.label for result in answered for one in result.item.objects}
    seen |= {one.label for result in answered for one in result.found}
    there = [label for label in labels if label in seen]
    mean = sum(rates["IOU"][label] for label in there) / len(there) if there else None
    rows = tuple((label, *(rates[name][label] for name in rates)) for label in sorted(there))
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
