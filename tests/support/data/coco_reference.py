"""Create random detections, for Charioteer and as COCO's JSON, and measure the JSON with COCO's tools."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pycocotools.mask
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from app.plugins.evaluation.answers import EvaluatedItem, PredictedObject
from app.plugins.evaluation.dataset import LabelledObject
from app.plugins.evaluation.masks import read_run_lengths
from tasks.vision.contours import contours_of_mask
from tests.support.data.evaluation_samples import item

LABELS = ("cat", "dog", "owl", "yak")
WIDTH, HEIGHT, IMAGES = 160, 120, 12
MASK: Any = pycocotools.mask


@dataclass(slots=True)
class RandomSet:
    """Random images: `results` for Charioteer, `truth` and `found` with the same content as COCO's JSON."""

    results: list[EvaluatedItem] = field(default_factory=list[EvaluatedItem])
    truth: dict[str, Any] = field(default_factory=dict[str, Any])
    found: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def random_set(seed: int, *, digits: int | None = None, masks: bool = False, crowds: float = 0.1) -> RandomSet:
    """Return objects and predictions that overlap: some are missed, duplicated, mislabelled, crowds or invented.

    Args:
        seed: of the random numbers.
        digits: scores are rounded to this many digits, so that many are equal.
        masks: ellipses as run lengths, polygons and contours, instead of boxes.
        crowds: the share of objects that are crowds.
    """
    rng = np.random.default_rng(seed)
    created = RandomSet()
    annotations: list[dict[str, Any]] = []
    for image in range(IMAGES):
        objects: list[LabelledObject] = []
        predictions: list[PredictedObject] = []
        for _ in range(int(rng.integers(0, 9))):
            box, label = _random_box(rng), str(rng.choice(LABELS))
            if rng.random() < 0.85:
                crowd = bool(rng.random() < crowds)
                labelled, segmentation = _labelled(label, box, crowd=crowd, masks=masks, rng=rng)
                objects.append(labelled)
                annotations.append({"id": len(annotations) + 1, **_fields(image, label, box), "iscrowd": int(crowd)})
                annotations[-1].update({"segmentation": segmentation} if masks else {})
            for _ in range(int(rng.choice([0, 1, 1, 2, 3]))):
                moved = box + rng.normal(0, 3, 4)
                moved = tuple(np.concatenate([moved[:2], np.maximum(moved[2:], moved[:2] + 4)]).tolist())
                predicted = label if rng.random() < 0.85 else str(rng.choice(LABELS))
                score = float(rng.uniform(0.05, 1))
                score = score if digits is None else round(score, digits)
                result = {**_fields(image, predicted, moved), "score": score}
                rings = None
                if masks:
                    pixels = _ellipse(moved)
                    del result["bbox"]
                    result["segmentation"] = MASK.encode(np.asfortranarray(pixels))
                    rings = tuple(tuple((x, y) for x, y in contour.tolist()) for contour in contours_of_mask(pixels))
                created.found.append(result)
                predictions.append(
                    PredictedObject(label=predicted, score=score, box=None if masks else moved, rings=rings)
                )
        named = item(f"{image}.jpg", objects, size=(WIDTH, HEIGHT))
        created.results.append(EvaluatedItem(item=named, predictions=tuple(predictions)))
    created.truth = {
        "info": {},
        "images": [{"id": image, "width": WIDTH, "height": HEIGHT} for image in range(IMAGES)],
        "annotations": annotations,
        "categories": [{"id": number, "name": name} for number, name in enumerate(LABELS)],
    }
    return created


def coco_figures(
    truth: Mapping[str, Any], found: Sequence[Mapping[str, Any]], *, masks: bool = False
) -> tuple[Mapping[str, float], NDArray[np.float64]]:
    """Return pycocotools' figures under Charioteer's names, and its precision by IoU, recall and class."""
    with contextlib.redirect_stdout(io.StringIO()):
        coco: Any = COCO()
        coco.dataset = truth
        coco.createIndex()
        evaluation: Any = COCOeval(coco, coco.loadRes([dict(result) for result in found]), "segm" if masks else "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    names = {"map_coco": 0, "ap50": 1, "ap75": 2, "ar": 8}
    figures = {name: float(evaluation.stats[index]) for name, index in names.items()}
    return figures, evaluation.eval["precision"][:, :, :, 0, 2]


def _random_box(rng: np.random.Generator) -> NDArray[np.float64]:
    """Return left, top, right and bottom."""
    left, top = rng.uniform(5, 110), rng.uniform(5, 80)
    return np.array([left, top, left + rng.uniform(12, 45), top + rng.uniform(12, 35)])


def _fields(image: int, label: str, box: Any) -> dict[str, Any]:
    left, top, right, bottom = (float(value) for value in box)
    width, height = right - left, bottom - top
    place = {"bbox": [left, top, width, height], "area": width * height}
    return {"image_id": image, "category_id": LABELS.index(label), **place}


def _labelled(
    label: str, box: NDArray[np.float64], *, crowd: bool, masks: bool, rng: np.random.Generator
) -> tuple[LabelledObject, Any]:
    """Return an object, and its mask in COCO's form: run lengths, or a polygon."""
    left, top, right, bottom = box.tolist()
    labelled = LabelledObject(label=label, box=(left, top, right, bottom), ignored=crowd)
    if not masks:
        return labelled, None
    if crowd or rng.random() < 0.5:
        encoded = MASK.encode(np.asfortranarray(_ellipse(box)))
        mask = read_run_lengths(encoded["counts"].decode(), HEIGHT, WIDTH)
        return LabelledObject(label=label, box=labelled.box, mask=mask, ignored=crowd), encoded
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    xs, ys = (left + right + (right - left) * np.cos(angles)) / 2, (top + bottom + (bottom - top) * np.sin(angles)) / 2
    ring = tuple(zip(xs.tolist(), ys.tolist(), strict=True))
    polygon = [value for point in ring for value in point]
    return LabelledObject(label=label, box=labelled.box, rings=(ring,)), [polygon]


def _ellipse(box: Any) -> NDArray[np.uint8]:
    """Return the (HEIGHT, WIDTH) pixels of the ellipse in a box."""
    left, top, right, bottom = (float(value) for value in box)
    ys, xs = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    distances = ((2 * xs - left - right) / (right - left)) ** 2 + ((2 * ys - top - bottom) / (bottom - top)) ** 2
    return (distances <= 1).astype(np.uint8)
