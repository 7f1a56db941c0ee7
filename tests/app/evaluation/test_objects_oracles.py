"""Average precision and recall against pycocotools and faster-coco-eval, on random sets.

valor-lite and COCO differ in the mean over labels, in crowds of one class, and beyond 100 findings.
And where a class has 10, 20, 30 ... objects, a recall of 0.3, 0.6 ... falls below the rounded threshold of that name
in COCO's tools. The sets keep to where they may not differ.
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

from app.evaluation.answers import Answered
from app.evaluation.objects import measure_objects
from app.evaluation.report import Measures
from tasks.task import TaskType
from tests.support.evaluations import boxes

MASK: Any = pycocotools.mask
VALOR: Any = valor_lite.object_detection
LABELS = ("cat", "dog", "owl", "yak")


def random_set(seed: int, images: int = 12) -> list[Answered]:
    """Objects on a grid, so that no finding touches two: some are missed, found twice, mistaken or invented."""
    rng = np.random.default_rng(seed)
    made: list[Answered] = []
    for image in range(images):
        truths: list[Any] = []
        found: list[Any] = []
        for cell in rng.permutation(16)[: rng.integers(0, 9)].tolist():
            x, y = 100 * (cell % 4) + 20, 100 * (cell // 4) + 20
            w, h = rng.uniform(30, 60, 2)
            label = str(rng.choice(LABELS))
            kind = rng.random()
            if kind < 0.85:
                truths.append((label, (x, y, x + w, y + h)))
            for _ in range(int(rng.choice([0, 1, 1, 1, 2]))):
                dx, dy, dw, dh = rng.normal(0, 4, 4)
                told = label if rng.random() < 0.85 else str(rng.choice(LABELS))
                found.append((told, float(rng.uniform(0.01, 1)), (x + dx, y + dy, x + w + dx + dw, y + h + dy + dh)))
        made.append(boxes(truths, found, f"{image}.jpg"))
    counts = Counter(one.label for each in made for one in each.item.objects)
    spare = [(label, (500.0, 400.0, 540.0, 440.0)) for label in LABELS if counts[label] % 10 == 0]
    return [*made, boxes(spare, [], "spare.jpg")]


def as_coco(answered: Sequence[Answered]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The same as COCO's annotations and results."""

    def box(values: Any) -> list[float]:
        left, top, right, bottom = values
        return [left, top, right - left, bottom - top]

    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for number, each in enumerate(answered, 1):
        for one in each.item.objects:
            values = box(one.box)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": LABELS.index(one.label) + 1,
                    "bbox": values,
                    "area": values[2] * values[3],
                    "iscrowd": 0,
                }
            )
        for guess in each.found:
            category = LABELS.index(guess.label) + 1
            results.append({"image_id": number, "category_id": category, "bbox": box(guess.box), "score": guess.score})
    images = [{"id": number, "width": 640, "height": 480} for number in range(1, len(answered) + 1)]
    categories = [{"id": number, "name": name} for number, name in enumerate(LABELS, 1)]
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}, results


def original(truth: dict[str, Any], results: list[dict[str, Any]], kind: Literal["bbox", "segm"] = "bbox") -> Any:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    coco: Any = COCO()
    coco.dataset = truth
    coco.createIndex()
    return COCOeval(coco, coco.loadRes(results), kind)


def faster_coco_eval(truth: dict[str, Any], results: list[dict[str, Any]]) -> Any:
    from faster_coco_eval import COCO, COCOeval_faster

    coco: Any = COCO(truth)
    return COCOeval_faster(coco, coco.loadRes(results), "bbox")


@pytest.mark.parametrize("seed", range(2))
def test_the_mean_is_valor_lites_own(seed: int) -> None:
    answered = random_set(seed)
    loader = VALOR.Loader.in_memory()
    for number, each in enumerate(answered):
        truths = [bounding(f"{number}-t{i}", one.box, one.label, []) for i, one in enumerate(each.item.objects)]
        found = [bounding(f"{number}-p{i}", one.box, one.label, [one.score]) for i, one in enumerate(each.found)]
        loader.add_bounding_boxes([VALOR.Detection(uid=str(number), groundtruths=truths, predictions=found)])
    ious = [round(0.5 + 0.05 * step, 2) for step in range(10)]
    metrics = loader.finalize().compute_precision_recall(iou_thresholds=ious, score_thresholds=[0.5])
    ours = measure_objects(answered, TaskType.OBJECT_DETECTION, 0.5)
    assert value(ours, "map") == pytest.approx(metrics[VALOR.MetricType.mAPAveragedOverIOUs][0].value, abs=1e-12)
    halves = [each.value for each in metrics[VALOR.MetricType.mAP] if each.parameters["iou_threshold"] == 0.5]
    assert value(ours, "ap50") == pytest.approx(halves[0], abs=1e-12)


def bounding(uid: str, box: Any, label: str, scores: list[float]) -> Any:
    left, top, right, bottom = box
    return VALOR.BoundingBox(uid=uid, xmin=left, xmax=right, ymin=top, ymax=bottom, labels=[label], scores=scores)


@pytest.mark.parametrize("seed", range(2))
def test_outlines_are_measured_as_coco_measures_them(seed: int) -> None:
    """With corners on whole pixels, where COCO's rasters have the areas of the polygons."""
    whole = [boxes_on_pixels(each) for each in random_set(seed)]
    ours = measure_objects([outlined(each) for each in whole], TaskType.IMAGE_SEGMENTATION, 0.5)
    truth, results = as_coco(whole)
    for each in (*truth["annotations"], *results):
        left, top, width, height = each["bbox"]
        right, bottom = left + width, top + height
        each["segmentation"] = [[left, top, right, top, right, bottom, left, bottom]]
    for each in results:
        # Results need masks as run lengths; those of a polygon are those of its raster.
        each["segmentation"] = MASK.frPyObjects(each.pop("segmentation"), 480, 640)[0]
        del each["bbox"]
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = original(truth, results, "segm")
        theirs.evaluate()
        theirs.accumulate()
        theirs.summarize()
    assert value(ours, "map_coco") == pytest.approx(theirs.stats[0], abs=1e-6)
    assert value(ours, "ar") == pytest.approx(theirs.stats[8], abs=1e-6)


def boxes_on_pixels(answered: Answered) -> Answered:
    """The same with whole numbers."""

    def whole(box: Any) -> Any:
        return tuple(float(round(each)) for each in box)

    objects = [(one.label, whole(one.box)) for one in answered.item.objects]
    found = [(guess.label, guess.score, whole(guess.box)) for guess in answered.found]
    return boxes(objects, found, answered.item.id)


def outlined(answered: Answered) -> Answered:
    """The same as outlines."""

    def rings(box: Any) -> Any:
        left, top, right, bottom = box
        return (((left, top), (right, top), (right, bottom), (left, bottom)),)

    objects = tuple(msgspec.structs.replace(one, rings=rings(one.box)) for one in answered.item.objects)
    found = tuple(msgspec.structs.replace(guess, box=None, rings=rings(guess.box)) for guess in answered.found)
    return Answered(item=msgspec.structs.replace(answered.item, objects=objects), found=found)


def value(measures: Measures, name: str) -> float:
    found = next(each.value for each in measures.figures if each.name == name)
    assert found is not None
    return found


@pytest.mark.parametrize("oracle", [original, faster_coco_eval])
@pytest.mark.parametrize("seed", range(4))
def test_average_precision_and_recall_are_those_of_coco(oracle: Any, seed: int) -> None:
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
    # (IoU thresholds, recalls, classes, areas, most findings)
    precision = theirs.eval["precision"][:, :, :, 0, 2].mean(axis=1)
    classes = {row[0]: row for row in ours.tables[0].rows}
    for index, label in enumerate(LABELS):
        if precision[0, index] >= 0:
            _, _, ap, ap50, ap75, *_ = classes[label]
            assert ap == pytest.approx(precision[:, index].mean(), abs=1e-6)
            assert ap50 == pytest.approx(precision[0, index], abs=1e-6)
            assert ap75 == pytest.approx(precision[5, index], abs=1e-6)
