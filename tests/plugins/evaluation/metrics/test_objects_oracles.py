"""Average precision and recall on random sets, compared with pycocotools and valor-lite."""

from typing import Any

import pytest
import valor_lite.object_detection

from app.plugins.evaluation.metrics.coco import IOUS
from app.plugins.evaluation.metrics.objects import measure_objects
from tasks.task import TaskType
from tests.support.data.coco_reference import LABELS, coco_figures, random_set

VALOR: Any = valor_lite.object_detection
NAMES = ("map_coco", "ap50", "ap75", "ar")


@pytest.mark.parametrize("digits", [None, 1], ids=["distinct scores", "equal scores"])
@pytest.mark.parametrize("masks", [False, True], ids=["boxes", "masks"])
@pytest.mark.parametrize("seed", range(2))
def test_average_precision_and_recall_equal_coco(seed: int, masks: bool, digits: int | None) -> None:
    created = random_set(seed, digits=digits, masks=masks)
    task = TaskType.IMAGE_SEGMENTATION if masks else TaskType.OBJECT_DETECTION
    ours = measure_objects(created.results, LABELS, task, 0.5)
    expected, precision = coco_figures(created.truth, created.found, masks=masks)
    figures = {figure.name: figure.value for figure in ours.figures}
    assert {name: figures[name] for name in NAMES} == pytest.approx(expected, abs=1e-9)
    classes = {row[0]: row[2:5] for row in ours.tables[0].rows}
    for index, label in enumerate(LABELS):
        aps = precision[:, :, index].mean(), precision[0, :, index].mean(), precision[5, :, index].mean()
        assert classes[label] == pytest.approx(aps, abs=1e-9)


@pytest.mark.parametrize("digits", [None, 1], ids=["distinct scores", "equal scores"])
def test_mean_average_precision_of_the_platform_equals_valor_lite(digits: int | None) -> None:
    results = random_set(5, digits=digits, crowds=0).results
    loader = VALOR.Loader.in_memory()
    for number, result in enumerate(results):
        truths = [valor_box(i, one.box, one.label, []) for i, one in enumerate(result.item.objects)]
        found = [valor_box(i, one.box, one.label, [one.score]) for i, one in enumerate(result.predictions)]
        loader.add_bounding_boxes([VALOR.Detection(uid=str(number), groundtruths=truths, predictions=found)])
    metrics = loader.finalize().compute_precision_recall(iou_thresholds=list(IOUS), score_thresholds=[0.5])
    (metric,) = metrics[VALOR.MetricType.mAPAveragedOverIOUs]
    # Valor's figure counts labels that the dataset does not have.
    ours = measure_objects(results, ("cat",), TaskType.OBJECT_DETECTION, 0.5)
    figures = {figure.name: figure.value for figure in ours.figures}
    assert figures["mAPAveragedOverIOUs"] == pytest.approx(metric.value, abs=1e-12)


def valor_box(index: int, box: Any, label: str, scores: list[float]) -> Any:
    sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return VALOR.BoundingBox(uid=str(index), labels=[label], scores=scores, **sides)
