"""Load ONNX models and build their inputs, without a server."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.runtimes.onnxruntime.files.location import locate_graph
from app.core.runtimes.onnxruntime.heads import task_and_model
from app.core.runtimes.onnxruntime.inspection import Inspection, inspect_model
from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import ModelSource
from metadata.model import Fact
from tasks.image_classification import ClassificationInput, ImageClassifier
from tasks.image_segmentation import ImageSegmenter, SegmentationInput, SegmentationParameters, Segments
from tasks.image_text_to_text import VisionLanguageModel
from tasks.object_detection import DetectionInput, DetectionParameters, Detections, ObjectDetector
from tasks.oriented_object_detection import OrientedDetections
from tasks.task import Model, TaskType
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tests.core.runtimes.onnxruntime import graphs


def inspected(source: ModelSource) -> Inspection:
    """Return the inspection of a vision model."""
    return inspect_model(source, Session(locate_graph(source)))


def uniform_image(height: int, width: int, *colour: int) -> Image:
    """Return an image of one colour or grey value."""
    return Image(np.full((height, width, 3), colour, np.uint8))


def classification_input(image: Image) -> ClassificationInput:
    """Return an input for a classifier."""
    return ClassificationInput(image, SelectionParameters())


def detection_input(
    image: Image, score_threshold: float = 0.5, iou_threshold: float = 0.45, *, agnostic: bool = False
) -> DetectionInput:
    """Return an input for a detector."""
    parameters = DetectionParameters(score_threshold=score_threshold, iou_threshold=iou_threshold, agnostic=agnostic)
    return DetectionInput(image, parameters, score_threshold)


def segmentation_input(image: Image, score_threshold: float = 0.5) -> SegmentationInput:
    """Return an input for a segmenter."""
    return SegmentationInput(image, SegmentationParameters(score_threshold=score_threshold), score_threshold)


def classifier(file: Path, **settings: Any) -> ImageClassifier:
    """Load a model as a classifier."""
    return _model(file, TaskType.IMAGE_CLASSIFICATION, settings)


def detector(file: Path, **settings: Any) -> ObjectDetector:
    """Load a model as a detector."""
    return _model(file, TaskType.OBJECT_DETECTION, settings)


def oriented_detector(file: Path, **settings: Any) -> Model[DetectionInput, OrientedDetections]:
    """Load a model as an oriented detector."""
    return _model(file, TaskType.ORIENTED_OBJECT_DETECTION, settings)


def segmenter(file: Path, **settings: Any) -> ImageSegmenter:
    """Load a model as a segmenter."""
    return _model(file, TaskType.IMAGE_SEGMENTATION, settings)


def text_reader(file: Path, **settings: Any) -> VisionLanguageModel:
    """Load a model as a text reader."""
    return _model(file, TaskType.IMAGE_TEXT_TO_TEXT, settings)


def _model(file: Path, task_type: TaskType, settings: dict[str, Any]) -> Any:
    task, model, _ = task_and_model(inspected(graphs.source(file, **settings)))
    assert task.task_type is task_type
    return model


def detect(
    file: Path, image: Image, score_threshold: float = 0.5, iou_threshold: float = 0.45, **settings: Any
) -> Detections:
    """Return what a detector finds in an image."""
    (found,) = detector(file, **settings)([detection_input(image, score_threshold, iou_threshold)])
    return found


def segment(file: Path, image: Image, score_threshold: float = 0.5, **settings: Any) -> Segments:
    """Return what a segmenter finds in an image."""
    (found,) = segmenter(file, **settings)([segmentation_input(image, score_threshold)])
    return found


def facts_of(file: Path, **settings: Any) -> dict[str, Fact]:
    """Return the facts about a vision model by topic."""
    return {fact.topic: fact for fact in inspected(graphs.source(file, **settings)).description.facts}


def assert_found(
    found: Detections | OrientedDetections, *expected: tuple[str, float, Sequence[float]], tolerance: float = 1e-3
) -> None:
    """Check the label, score and box of each object."""
    labels, scores, boxes = zip(*expected, strict=True)
    assert tuple(found.labels) == labels
    assert found.scores == pytest.approx(scores, abs=1e-3)
    assert all_close(found.boxes, boxes, tolerance)


def all_close(found: Any, expected: Sequence[Sequence[float]], tolerance: float = 1e-3) -> bool:
    """Return whether two arrays have equal shapes, and equal values within a tolerance."""
    reference = np.array(expected, np.float64)
    return np.shape(found) == reference.shape and bool(np.allclose(found, reference, rtol=0, atol=tolerance))
