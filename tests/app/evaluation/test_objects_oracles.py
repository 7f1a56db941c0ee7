"""Average precision and recall, compared with pycocotools and faster-coco-eval on random sets.

valor-lite and COCO differ in the mean over labels, in crowds of one class, and above 100 findings.
They also differ where a class has 10, 20, 30 ... objects: COCO's tools round their thresholds, so that a recall of
0.3, 0.6 ... falls below the threshold of that name. The random sets avoid all these cases.
"""

import contextlib
import io
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import pycocotools.mask
import pytest
import valor_lite.object_detection

from app.evaluation.answers import EvaluatedItem
from app.evaluation.objects import measure_objects
from app.evaluation.report import Measures
from tasks.task import TaskType
from tests.support.evaluation_samples import detection_sample

MASK: Any = pycocotools.mask
VALOR: Any = valor_lite.object_detection
LABELS = ("cat", "dog", "owl", "yak")


def random_set(seed: int, images: int = 12) -> list[EvaluatedItem]:
    """Return objects on a grid, where no finding overlaps two: some are missed, duplicated, mislabelled or invented."""
    rng = np.random.default_rng(seed)
    answered: list[EvaluatedItem] = []
    for image in range(images):
        truths: list[Any] = []
        found: list[Any] = []
        for cell in rng.permutation(16)[: rng.integers(0, 9)].tolist():
            x, y = 100 * (cell % 4) + 20, 100 * (cell // 4) + 20
            w, h = rng.uniform(30, 60, 2)
            label = str(rng.choice(LABELS))
            iou_type = rng.random()
            if iou_type < 0.85:
                truths.append((label, (x, y, x + w, y + h)))
            for _ in range(int(rng.choice([0, 1, 1, 1, 2]))):
                dx, dy, dw, dh = rng.normal(0, 4, 4)
                predicted = label if rng.random() < 0.85 else str(rng.choice(LABELS))
                found.append(
                    (predicted, float(rng.uniform(0.01, 1)), (x + dx, y + dy, x + w + dx + dw, y + h + dy + dh))
                )
        answered.append(detection_sample(truths, found, f"{image}.jpg"))
    counts = Counter(obj.label for answer in answered for obj in answer.item.objects)
    spare = [(label, (500.0, 400.0, 540.0, 440.0)) for label in LABELS if counts[label] % 10 == 0]
    return [*answered, detection_sample(spare, [], "spare.jpg")]


def as_coco(answered: Sequence[EvaluatedItem]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Convert to COCO's annotations and results."""

    def box(values: Any) -> list[float]:
        left, top, right, bottom = values
        return [left, top, right - left, bottom - top]

    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for number, answer in enumerate(answered, 1):
        for obj in answer.item.objects:
            values = box(obj.box)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": LABELS.index(obj.label) + 1,
                    "bbox": values,
                    "area": values[2] * values[3],
                    "iscrowd": 0,
                }
            )
        for finding in answer.predictions:
            category = LABELS.index(finding.label) + 1
            results.append(
                {"image_id": number, "category_id": category, "bbox": box(finding.box), "score": finding.score}
            )
    images = [{"id": number, "width": 640, "height": 480} for number in range(1, len(answered) + 1)]
    categories = [{"id": number, "name": name} for number, name in enumerate(LABELS, 1)]
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}, results


def pycocotools_eval(
    truth: dict[str, Any], results: list[dict[str, Any]], iou_type: Literal["bbox", "segm"] = "bbox"
) -> Any:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    coco: Any = COCO()
    coco.dataset = truth
    coco.createIndex()
    return COCOeval(coco, coco.loadRes(results), iou_type)


def faster_coco_eval(truth: dict[str, Any], results: list[dict[str, Any]]) -> Any:
    from faster_coco_eval import COCO, COCOeval_faster

    coco: Any = COCO(truth)
    return COCOeval_faster(coco, coco.loadRes(results), "bbox")


@pytest.mark.parametrize("seed", range(2))
def test_mean_average_precision_equals_valor_lite(seed: int) -> None:
    answered = random_set(seed)
    loader = VALOR.Loader.in_memory()
    for number, answer in enumerate(answered):
        truths = [valor_box(f"{number}-t{i}", one.box, one.label, []) for i, one in enumerate(answer.item.objects)]
        found = [
            valor_box(f"{number}-p{i}", one.box, one.label, [one.score]) for i, one in enumerate(answer.predictions)
        ]
        loader.add_bounding_boxes([VALOR.Detection(uid=str(number), groundtruths=truths, predictions=found)])
    ious = [round(0.5 + 0.05 * step, 2) for step in range(10)]
    metrics = loader.finalize().compute_precision_recall(iou_thresholds=ious, score_thresholds=[0.5])
    ours = measure_objects(answered, TaskType.OBJECT_DETECTION, 0.5)
    assert value(ours, "map") == pytest.approx(metrics[VALOR.MetricType.mAPAveragedOverIOUs][0].value, abs=1e-12)
    ap50_values = [
        metric.value for metric in metrics[VALOR.MetricType.mAP] if metric.parameters["iou_threshold"] == 0.5
    ]
    assert value(ours, "ap50") == pytest.approx(ap50_values[0], abs=1e-12)


def valor_box(uid: str, box: Any, label: str, scores: list[float]) -> Any:
    left, top, right, bottom = box
    return VALOR.BoundingBox(uid=uid, xmin=left, xmax=right, ymin=top, ymax=bottom, labels=[label], scores=scores)


@pytest.mark.parametrize("seed", range(2))
def test_segmentation_metrics_equal_coco(seed: int) -> None:
    """Use corners on whole pixels, where COCO's rasters have the areas of the polygons."""
    aligned = [aligned_to_pixels(answer) for answer in random_set(seed)]
    ours = measure_objects([outlined(answer) for answer in aligned], TaskType.IMAGE_SEGMENTATION, 0.5)
    truth, results = as_coco(aligned)
    for entry in (*truth["annotations"], *results):
        left, top, width, height = entry["bbox"]
        right, bottom = left + width, top + height
        entry["segmentation"] = [[left, top, right, top, right, bottom, left, bottom]]
    for result in results:
        # COCO's results need masks as run lengths, so rasterize the polygon.
        result["segmentation"] = MASK.frPyObjects(result.pop("segmentation"), 480, 640)[0]
        del result["bbox"]
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = pycocotools_eval(truth, results, "segm")
        theirs.evaluate()
        theirs.accumulate()
        theirs.summarize()
    assert value(ours, "map_coco") == pytest.approx(theirs.stats[0], abs=1e-6)
    assert value(ours, "ar") == pytest.approx(theirs.stats[8], abs=1e-6)


def aligned_to_pixels(answered: EvaluatedItem) -> EvaluatedItem:
    """Return the same with coordinates on whole pixels."""

    def rounded(box: Any) -> Any:
        return tuple(float(round(coordinate)) for coordinate in box)

    objects = [(obj.label, rounded(obj.box)) for obj in answered.item.objects]
    found = [(finding.label, finding.score, rounded(finding.box)) for finding in answered.predictions]
    return detection_sample(objects, found, answered.item.id)


def outlined(answered: EvaluatedItem) -> EvaluatedItem:
    """Return the same with outlines instead of boxes."""

    def rings(box: Any) -> Any:
        left, top, right, bottom = box
        return (((left, top), (right, top), (right, bottom), (left, bottom)),)

    objects = tuple(msgspec.structs.replace(obj, rings=rings(obj.box)) for obj in answered.item.objects)
    found = tuple(
        msgspec.structs.replace(finding, box=None, rings=rings(finding.box)) for finding in answered.predictions
    )
    return EvaluatedItem(item=msgspec.structs.replace(answered.item, objects=objects), predictions=found)


def value(measures: Measures, name: str) -> float:
    figure_value = next(figure.value for figure in measures.figures if figure.name == name)
    assert figure_value is not None
    return figure_value


@pytest.mark.parametrize("oracle", [pycocotools_eval, faster_coco_eval])
@pytest.mark.parametrize("seed", range(4))
def test_average_precision_and_recall_equal_coco(oracle: Any, seed: int) -> None:
    answered = random_set(seed)
    ours = measure_objects(answered, TaskType.OBJECT_DETECTION, 0.5)
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = oracle(*as_coco(answered))
        theirs.evaluate()
        theirs.accumulate()
        theirs.summarize()
    stats = list(theirs.stats)
    assert value(ours, "map_coco") == pytest.approx(stats[0], abs=1e-6)
    assert value(ours, "ar") == pytest.approx(stats[8], abs=1e-6)
    # Axes: IoU thresholds, recalls, classes, areas, limits of findings.
    precision = theirs.eval["precision"][:, :, :, 0, 2].mean(axis=1)
    classes = {row[0]: row for row in ours.tables[0].rows}
    for index, label in enumerate(LABELS):
        if precision[0, index] >= 0:
            _, _, ap, ap50, ap75, *_ = classes[label]
            assert ap == pytest.approx(precision[:, index].mean(), abs=1e-6)
            assert ap50 == pytest.approx(precision[0, index], abs=1e-6)
            assert ap75 == pytest.approx(precision[5, index], abs=1e-6)
