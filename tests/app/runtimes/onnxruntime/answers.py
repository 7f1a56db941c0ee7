"""Load ONNX models and build their inputs, without a server."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.runtimes.onnxruntime.files.location import locate_graph
from app.runtimes.onnxruntime.heads import (
    OnnxImageClassifier,
    OnnxImageSegmenter,
    OnnxObjectDetector,
    OnnxOrientedObjectDetector,
    OnnxTextReader,
)
from app.runtimes.onnxruntime.inspection import Inspection, inspect_model
from app.runtimes.onnxruntime.layouts.layout import (
    BoxDecoder,
    ClassDecoder,
    MaskDecoder,
    OrientedBoxDecoder,
    TextDecoder,
)
from app.runtimes.onnxruntime.session import Session
from app.settings.model import ModelSource
from tasks.image_classification import ClassificationInput
from tasks.image_segmentation import SegmentationInput, SegmentationParameters
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tests.app.runtimes.onnxruntime import graphs


def inspected(source: ModelSource) -> Inspection:
    """Return the inspection of a vision model."""
    return inspect_model(source, Session(locate_graph(source)))


def uniform_image(height: int, width: int, *colour: int) -> Image:
    """Return an image of one colour or grey value."""
    return Image(np.full((height, width, 3), colour, np.uint8))


def classification_input(image: Image) -> ClassificationInput:
    """Return an input for a classifier."""
    return ClassificationInput(image, SelectionParameters())


def detection_input(image: Image, score_threshold: float = 0.5, iou_threshold: float = 0.45) -> DetectionInput:
    """Return an input for a detector."""
    return DetectionInput(image, DetectionParameters(score_threshold=score_threshold, iou_threshold=iou_threshold))


def segmentation_input(image: Image, score_threshold: float = 0.5) -> SegmentationInput:
    """Return an input for a segmenter."""
    return SegmentationInput(image, SegmentationParameters(score_threshold=score_threshold))


def classifier(file: Path, **settings: Any) -> OnnxImageClassifier:
    """Load a model as a classifier."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.decoder, ClassDecoder)
    return OnnxImageClassifier(found.graph, found.labels, found.decoder)


def detector(file: Path, **settings: Any) -> OnnxObjectDetector:
    """Load a model as a detector."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.decoder, BoxDecoder)
    return OnnxObjectDetector(found.graph, found.labels, found.decoder)


def oriented_detector(file: Path, **settings: Any) -> OnnxOrientedObjectDetector:
    """Load a model as an oriented detector."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.decoder, OrientedBoxDecoder)
    return OnnxOrientedObjectDetector(found.graph, found.labels, found.decoder)


def segmenter(file: Path, **settings: Any) -> OnnxImageSegmenter:
    """Load a model as a segmenter."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.decoder, MaskDecoder)
    return OnnxImageSegmenter(found.graph, found.labels, found.decoder)


def text_reader(file: Path, **settings: Any) -> OnnxTextReader:
    """Load a model as a text reader."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.decoder, TextDecoder)
    return OnnxTextReader(found.graph, found.decoder)


def all_close(found: Any, expected: Sequence[Sequence[float]], tolerance: float = 1e-3) -> bool:
    """Return whether two arrays have equal shapes, and equal values within a tolerance."""
    reference = np.array(expected, np.float64)
    return np.shape(found) == reference.shape and bool(np.allclose(found, reference, rtol=0, atol=tolerance))
