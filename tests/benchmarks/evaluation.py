"""Print Charioteer's figures beside those of pycocotools, faster-coco-eval, scikit-learn and valor-lite.

The images are random. Scores are distinct, or rounded to one digit, so that many are equal. The program fails if a
figure differs. Usage: ``python -m tests.benchmarks.evaluation`` (seconds).
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sklearn.metrics
import valor_lite.classification
import valor_lite.object_detection
from faster_coco_eval import COCO, COCOeval_faster
from rich.console import Console
from rich.table import Table

from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.metrics.classes import measure_classes
from app.plugins.evaluation.metrics.coco import IOUS
from app.plugins.evaluation.metrics.objects import measure_objects
from app.plugins.evaluation.report import Measures
from tasks.task import TaskType
from tests.support.data.coco_reference import LABELS, RandomSet, coco_figures, decoded, random_set
from tests.support.data.evaluation_samples import classification_sample

Figures = Mapping[str, float | None]

_TOLERANCE = 1e-9
_OBJECT_FIGURES = ("map_coco", "ap50", "ap75", "ar", "mAPAveragedOverIOUs")
_CLASS_FIGURES = ("accuracy", "top5_accuracy", "precision", "recall", "f1", "roc_auc")
_CLASSES = [f"class {index:02}" for index in range(12)]


def main() -> None:
    """Measure, print two tables, and fail when a figure differs from the reference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    objects = Table("objects", "scores", "tool", *_OBJECT_FIGURES, title=f"{options.images} images")
    classes = Table("scores", "tool", *_CLASS_FIGURES, title=f"{options.images} images, {len(_CLASSES)} classes")
    equal = True
    for scores, digits in (("distinct", None), ("one digit", 1)):
        for masks in (False, True):
            created = random_set(options.seed, images=options.images, digits=digits, masks=masks, crowds=0)
            kind = "masks" if masks else "boxes"
            equal &= _add(objects, _object_figures(created, masks=masks), _OBJECT_FIGURES, kind, scores)
        equal &= _add(classes, _class_figures(options.images, options.seed, digits), _CLASS_FIGURES, scores)
    console = Console(width=140)
    console.print(objects, classes)
    if not equal:
        console.print("The figures differ from the references.")
    sys.exit(not equal)


def _object_figures(created: RandomSet, *, masks: bool) -> Mapping[str, Figures]:
    task = TaskType.IMAGE_SEGMENTATION if masks else TaskType.OBJECT_DETECTION
    return {
        "charioteer": _by_name(measure_objects(created.results, LABELS, task, 0.5)),
        "pycocotools": coco_figures(created.truth, created.found, masks=masks)[0],
        "faster-coco-eval": _faster_coco_figures(created, masks=masks),
        "valor-lite": {"mAPAveragedOverIOUs": _valor_map(created, masks=masks)},
    }


def _faster_coco_figures(created: RandomSet, *, masks: bool) -> Figures:
    truth: Any = COCO(created.truth)
    found = truth.loadRes([dict(result) for result in created.found])
    evaluation: Any = COCOeval_faster(truth, found, "segm" if masks else "bbox")
    evaluation.run()
    return {name: float(evaluation.stats[index]) for name, index in zip(_OBJECT_FIGURES, (0, 1, 2, 8), strict=False)}


def _valor_map(created: RandomSet, *, masks: bool) -> float:
    valor: Any = valor_lite.object_detection

    def annotation(entry: Mapping[str, Any]) -> Any:
        label, scores = [LABELS[entry["category_id"]]], [entry["score"]] if "score" in entry else []
        if masks:
            return valor.Bitmask(uid="", mask=decoded(entry["segmentation"]), labels=label, scores=scores)
        left, top, width, height = entry["bbox"]
        corners = {"xmin": left, "xmax": left + width, "ymin": top, "ymax": top + height}
        return valor.BoundingBox(uid="", labels=label, scores=scores, **corners)

    loader = valor.Loader.in_memory()
    add = loader.add_bitmasks if masks else loader.add_bounding_boxes
    for image in range(len(created.results)):
        truths, found = (
            [annotation(entry) for entry in entries if entry["image_id"] == image]
            for entries in (created.truth["annotations"], created.found)
        )
        add([valor.Detection(uid=str(image), groundtruths=truths, predictions=found)])
    metrics = loader.finalize().compute_precision_recall(iou_thresholds=list(IOUS), score_thresholds=[0.5])
    return metrics[valor.MetricType.mAPAveragedOverIOUs][0].value


def _class_figures(images: int, seed: int, digits: int | None) -> Mapping[str, Figures]:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, len(_CLASSES), images)
    scores = rng.uniform(0.1, 0.9, (images, len(_CLASSES)))
    scores[np.arange(images), numbers] = rng.uniform(0.3, 1, images)
    scores = scores if digits is None else scores.round(digits)
    true = [_CLASSES[number] for number in numbers]
    results = [
        classification_sample(label, dict(zip(_CLASSES, row.tolist(), strict=True)), f"{index}.jpg")
        for index, (label, row) in enumerate(zip(true, scores, strict=True))
    ]
    best = [_CLASSES[number] for number in scores.argmax(axis=1)]
    rates = sklearn.metrics.precision_recall_fscore_support(true, best, average="macro", zero_division=0)
    reference = {
        "accuracy": sklearn.metrics.accuracy_score(true, best),
        "top5_accuracy": sklearn.metrics.top_k_accuracy_score(true, scores, k=5, labels=_CLASSES),
        **dict(zip(("precision", "recall", "f1"), rates, strict=False)),
        "roc_auc": sklearn.metrics.roc_auc_score(np.eye(len(_CLASSES))[numbers], scores, average="macro"),
    }
    return {
        "charioteer": _by_name(measure_classes(results)),
        "scikit-learn": reference,
        "valor-lite": _valor_classes(results),
    }


def _valor_classes(results: Sequence[EvaluatedItem]) -> Figures:
    valor: Any = valor_lite.classification
    loader = valor.Loader.in_memory()
    for index, result in enumerate(results):
        labels, scores = ([getattr(one, name) for one in result.predictions] for name in ("label", "score"))
        loader.add_data([valor.Classification(str(index), result.item.label, predictions=labels, scores=scores)])
    evaluator = loader.finalize()
    metrics = {kind.value: values for kind, values in evaluator.compute_precision_recall().items()}
    means = {
        name: float(np.mean([metric.value for metric in metrics[valor_name]]))
        for name, valor_name in (("precision", "Precision"), ("recall", "Recall"), ("f1", "F1"))
    }
    areas = {kind.value: values for kind, values in evaluator.compute_rocauc().items()}
    return {**means, "accuracy": metrics["Accuracy"][0].value, "roc_auc": float(areas["mROCAUC"][0].value)}


def _by_name(measures: Measures) -> Figures:
    return {figure.name: figure.value for figure in measures.figures}


def _add(table: Table, tools: Mapping[str, Figures], names: Sequence[str], *cells: str) -> bool:
    """Add a row for each tool. Return whether all figures equal ours."""
    ours, equal = tools["charioteer"], True
    for tool, figures in tools.items():
        values = ("" if (value := figures.get(name)) is None else f"{value:.4f}" for name in names)
        table.add_row(*cells, tool, *values)
        equal &= all(abs((ours[name] or 0) - (value or 0)) <= _TOLERANCE for name, value in figures.items())
    return equal


if __name__ == "__main__":
    main()
