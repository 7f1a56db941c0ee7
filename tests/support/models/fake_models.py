"""Provide models without a framework, with predictable answers: each finds the bright part of a dark image."""

from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from metadata.model import ModelMetadata
from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, Segments
from tasks.image_text_to_text import Answers, ImageTextToText, PromptedImage
from tasks.object_detection import DetectionInput, Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.task import TaskType
from tasks.text_generation import ContinuedText, Generation, TextGeneration
from tasks.vision.contours import contours_of_mask
from tasks.vision.image import Image

LABELS = ("red", "green", "blue")


def bright_mask(image: Image) -> NDArray[np.uint8]:
    """Return the (height, width) mask of the bright pixels."""
    return (image.pixels.max(axis=2) > 127).astype(np.uint8)


def _mean_colour(image: Image) -> str:
    mask = bright_mask(image).astype(np.bool_)
    return LABELS[int(image.pixels[mask].mean(axis=0).argmax())] if mask.any() else LABELS[0]


def classify(inputs: Sequence[ClassificationInput]) -> Sequence[Classification]:
    """Return the share of each channel in the sum of all pixels."""
    totals = [sample.image.pixels.sum(axis=(0, 1)).astype(np.float64) for sample in inputs]
    return [Classification(labels=LABELS, scores=(t / max(t.sum(), 1)).astype(np.float32)) for t in totals]


def detect(inputs: Sequence[DetectionInput]) -> Sequence[Detections]:
    """Return the box around the bright part (score 0.9), and a box over the left border (0.3)."""
    results: list[Detections] = []
    for sample in inputs:
        x, y, w, h = cv2.boundingRect(bright_mask(sample.image))
        boxes = np.array([[x, y, x + w, y + h], [-5, 0, 5, sample.image.height + 5]], np.float32)
        scores = np.array([0.9 if w else 0, 0.3], np.float32)
        results.append(Detections(labels=[_mean_colour(sample.image), "border"], scores=scores, boxes=boxes))
    return results


def detect_oriented(inputs: Sequence[DetectionInput]) -> Sequence[OrientedDetections]:
    """Return the smallest oriented box around the bright part, its long side first, the angle in -pi/2..pi/2."""
    results: list[OrientedDetections] = []
    for sample in inputs:
        points = cv2.findNonZero(bright_mask(sample.image))
        (cx, cy), (w, h), degrees = cv2.minAreaRect(points)
        if w < h:
            w, h, degrees = h, w, degrees + 90
        angle = (np.radians(degrees) + np.pi / 2) % np.pi - np.pi / 2
        box = np.array([[cx, cy, w, h, angle]], np.float32)
        size = {"width": sample.image.width, "height": sample.image.height}
        labels, scores = [_mean_colour(sample.image)], np.array([0.8], np.float32)
        results.append(OrientedDetections(labels=labels, scores=scores, boxes=box, **size))
    return results


def segment(inputs: Sequence[SegmentationInput]) -> Sequence[Segments]:
    return [
        Segments(
            labels=[_mean_colour(sample.image)],
            scores=np.array([0.7], np.float32),
            contours=[contours_of_mask(bright_mask(sample.image))],
        )
        for sample in inputs
    ]


def answer_with_size(inputs: Sequence[PromptedImage]) -> Sequence[Answers]:
    return [
        Answers(prompts=sample.prompts, answers=[f"{sample.image.width}x{sample.image.height}" for _ in sample.prompts])
        for sample in inputs
    ]


def generate_prefix(inputs: Sequence[ContinuedText]) -> Sequence[Generation]:
    """Return the first `max_new_tokens` characters of the text, in capitals if sampling is on."""
    prefixes = [(sample.text[: sample.parameters.max_new_tokens], sample.parameters.temperature) for sample in inputs]
    return [Generation(text.upper() if temperature else text) for text, temperature in prefixes]


def fail(inputs: Sequence[Any]) -> Sequence[Any]:
    raise RuntimeError(f"a model that fails on {len(inputs)}")


FAKE_MODELS: dict[str, tuple[TaskType, Any, Callable[[Sequence[Any]], Sequence[Any]]]] = {
    "classifier": (TaskType.IMAGE_CLASSIFICATION, ImageClassification(), classify),
    "detector": (TaskType.OBJECT_DETECTION, ObjectDetection(), detect),
    "oriented": (TaskType.ORIENTED_OBJECT_DETECTION, OrientedObjectDetection(), detect_oriented),
    "segmenter": (TaskType.IMAGE_SEGMENTATION, ImageSegmentation(), segment),
    "teller": (TaskType.IMAGE_TEXT_TO_TEXT, ImageTextToText(), answer_with_size),
    "continuer": (TaskType.TEXT_GENERATION, TextGeneration(), generate_prefix),
    "failing": (TaskType.OBJECT_DETECTION, ObjectDetection(), fail),
}


def stand_in_metadata(task_type: TaskType, labels: Sequence[str] = ()) -> ModelMetadata:
    """Return the description of a model that a test writes as a function."""
    return ModelMetadata(
        task_type=task_type, platform="stand-in", layout="none", labels=labels, inputs=(), outputs=(), facts=()
    )


def load_fake_model(source: ModelSource) -> Servable:
    task_type, task, model = FAKE_MODELS[source.name]
    return Servable(task, model, stand_in_metadata(task_type, LABELS), source.settings.parameters)
