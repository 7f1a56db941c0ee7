"""Models without a framework, whose right answer anyone can work out: each finds the bright part of a dark picture."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.engine.description import ModelDescription
from app.engine.servable import BoundServable, Servable
from app.settings.model import ModelSource
from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, Segments
from tasks.image_text_to_text import Answers, ImageTextToText, PromptedImage
from tasks.object_detection import DetectionInput, Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.task import TaskType
from tasks.text_classification import ClassifiedText, TextClassification
from tasks.text_generation import ContinuedText, Generation, TextGeneration
from tasks.token_classification import Entities, TaggedText, TokenClassification
from tasks.vision.contours import contours_of_mask
from tasks.vision.image import Image

LABELS = ("red", "green", "blue")


def bright(image: Image) -> NDArray[np.uint8]:
    """(height, width) mask of the bright pixels."""
    return (image.pixels.max(axis=2) > 127).astype(np.uint8)


def _colour(image: Image) -> str:
    mask = bright(image).astype(np.bool_)
    return LABELS[int(image.pixels[mask].mean(axis=0).argmax())] if mask.any() else LABELS[0]


def classify(inputs: Sequence[ClassificationInput]) -> Sequence[Classification]:
    """Shares of the channels in all light."""
    totals = [each.image.pixels.sum(axis=(0, 1)).astype(np.float64) for each in inputs]
    return [Classification(labels=LABELS, scores=(t / max(t.sum(), 1)).astype(np.float32)) for t in totals]


def detect(inputs: Sequence[DetectionInput]) -> Sequence[Detections]:
    """The box around what is bright (score 0.9), and a box over the left border (0.3)."""
    found: list[Detections] = []
    for each in inputs:
        x, y, w, h = cv2.boundingRect(bright(each.image))
        boxes = np.array([[x, y, x + w, y + h], [-5, 0, 5, each.image.height + 5]], np.float32)
        scores = np.array([0.9 if w else 0, 0.3], np.float32)
        found.append(Detections(labels=[_colour(each.image), "border"], scores=scores, boxes=boxes))
    return found


def detect_oriented(inputs: Sequence[DetectionInput]) -> Sequence[OrientedDetections]:
    """The smallest turned box around what is bright, its long side first, the angle within -pi/2..pi/2."""
    found: list[OrientedDetections] = []
    for each in inputs:
        points = cv2.findNonZero(bright(each.image))
        (cx, cy), (w, h), degrees = cv2.minAreaRect(points)
        if w < h:
            w, h, degrees = h, w, degrees + 90
        angle = (np.radians(degrees) + np.pi / 2) % np.pi - np.pi / 2
        box = np.array([[cx, cy, w, h, angle]], np.float32)
        found.append(
            OrientedDetections(
                labels=[_colour(each.image)],
                scores=np.array([0.8], np.float32),
                boxes=box,
                width=each.image.width,
                height=each.image.height,
            )
        )
    return found


def segment(inputs: Sequence[SegmentationInput]) -> Sequence[Segments]:
    """The outline of what is bright."""
    return [
        Segments(
            labels=[_colour(each.image)],
            scores=np.array([0.7], np.float32),
            contours=[contours_of_mask(bright(each.image))],
        )
        for each in inputs
    ]


def tell(inputs: Sequence[PromptedImage]) -> Sequence[Answers]:
    """Every prompt answered with the size of the image."""
    return [
        Answers(prompts=each.prompts, answers=[f"{each.image.width}x{each.image.height}" for _ in each.prompts])
        for each in inputs
    ]


def sort(inputs: Sequence[ClassifiedText]) -> Sequence[Classification]:
    """How often each colour is named, as a share of all that are."""
    counted = [np.array([each.item.text.count(label) for label in LABELS], np.float64) for each in inputs]
    return [Classification(labels=LABELS, scores=(c / max(c.sum(), 1)).astype(np.float32)) for c in counted]


def tag(inputs: Sequence[TaggedText]) -> Sequence[Entities]:
    """Every colour that is named, in its order; the later it stands, the less sure."""
    found: list[Entities] = []
    for each in inputs:
        spans = [match.span() for match in re.finditer("|".join(LABELS), each.item.text)]
        words = [each.item.text[start:end] for start, end in spans]
        scores = np.array([1 / (1 + place) for place in range(len(spans))], np.float32)
        found.append(
            Entities(
                labels=["COLOUR"] * len(spans), scores=scores, words=words,
                spans=np.array(spans, np.int32).reshape(-1, 2),
            )
        )  # fmt: skip
    return found


def go_on(inputs: Sequence[ContinuedText]) -> Sequence[Generation]:
    """The text again, as many characters as tokens were asked for; in capitals when they are sampled."""
    said = [(each.item.text[: each.parameters.max_new_tokens], each.parameters.temperature) for each in inputs]
    return [Generation(text.upper() if temperature else text) for text, temperature in said]


def fail(inputs: Sequence[Any]) -> Sequence[Any]:
    """Never answers."""
    raise RuntimeError(f"a model that fails on {len(inputs)}")


STAND_INS: dict[str, tuple[TaskType, Any, Callable[[Sequence[Any]], Sequence[Any]]]] = {
    "classifier": (TaskType.IMAGE_CLASSIFICATION, ImageClassification(), classify),
    "detector": (TaskType.OBJECT_DETECTION, ObjectDetection(), detect),
    "oriented": (TaskType.ORIENTED_OBJECT_DETECTION, OrientedObjectDetection(), detect_oriented),
    "segmenter": (TaskType.IMAGE_SEGMENTATION, ImageSegmentation(), segment),
    "teller": (TaskType.IMAGE_TEXT_TO_TEXT, ImageTextToText(), tell),
    "sorter": (TaskType.TEXT_CLASSIFICATION, TextClassification(), sort),
    "tagger": (TaskType.TOKEN_CLASSIFICATION, TokenClassification(), tag),
    "continuer": (TaskType.TEXT_GENERATION, TextGeneration(), go_on),
    "failing": (TaskType.OBJECT_DETECTION, ObjectDetection(), fail),
}


def load_stand_in(source: ModelSource) -> Servable:
    """The stand-in that `source` is called after."""
    task_type, task, model = STAND_INS[source.name]
    description = ModelDescription(
        task_type=task_type, platform="stand-in", layout="none", labels=LABELS, inputs=(), outputs=(), facts=()
    )
    return BoundServable(task, model, description, source.settings.parameters)
