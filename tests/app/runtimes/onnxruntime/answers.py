"""Asking a model without a server."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.runtimes.onnxruntime.heads.classification import OnnxImageClassifier
from app.runtimes.onnxruntime.heads.detection import OnnxObjectDetector
from app.runtimes.onnxruntime.heads.oriented_detection import OnnxOrientedObjectDetector
from app.runtimes.onnxruntime.heads.segmentation import OnnxImageSegmenter
from app.runtimes.onnxruntime.heads.text_reading import OnnxTextReader
from app.runtimes.onnxruntime.inspection import Inspection, inspect_model
from app.runtimes.onnxruntime.layouts.layout import (
    ReadsBoxes,
    ReadsClasses,
    ReadsMasks,
    ReadsText,
    ReadsTurnedBoxes,
)
from app.runtimes.onnxruntime.location import locate_graph
from app.runtimes.onnxruntime.session import Session
from app.settings.model import ModelSource
from tasks.image_classification import ClassificationInput
from tasks.image_segmentation import SegmentationInput, SegmentationParameters
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.vision.image import Image
from tasks.vision.selection import SelectionParameters
from tests.app.runtimes.onnxruntime import graphs


def inspected(source: ModelSource) -> Inspection:
    """A vision model understood."""
    return inspect_model(source, Session(locate_graph(source)))


def flat(height: int, width: int, *colour: int) -> Image:
    """A picture of one colour, or one grey."""
    return Image(np.full((height, width, 3), colour, np.uint8))


def shown(image: Image) -> ClassificationInput:
    """A picture to be classified."""
    return ClassificationInput(image, SelectionParameters())


def sought(image: Image, score_threshold: float = 0.5, iou_threshold: float = 0.45) -> DetectionInput:
    """A picture in which objects are sought."""
    return DetectionInput(image, DetectionParameters(score_threshold=score_threshold, iou_threshold=iou_threshold))


def outlined(image: Image, score_threshold: float = 0.5) -> SegmentationInput:
    """A picture in which objects are outlined."""
    return SegmentationInput(image, SegmentationParameters(score_threshold=score_threshold))


def classifier(file: Path, **settings: Any) -> OnnxImageClassifier:
    """A model loaded as a classifier."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.reading, ReadsClasses)
    return OnnxImageClassifier(found.graph, found.labels, found.reading)


def detector(file: Path, **settings: Any) -> OnnxObjectDetector:
    """A model loaded as a detector."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.reading, ReadsBoxes)
    return OnnxObjectDetector(found.graph, found.labels, found.reading)


def oriented_detector(file: Path, **settings: Any) -> OnnxOrientedObjectDetector:
    """A model loaded as an oriented detector."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.reading, ReadsTurnedBoxes)
    return OnnxOrientedObjectDetector(found.graph, found.labels, found.reading)


def segmenter(file: Path, **settings: Any) -> OnnxImageSegmenter:
    """A model loaded as a segmenter."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.reading, ReadsMasks)
    return OnnxImageSegmenter(found.graph, found.labels, found.reading)


def text_reader(file: Path, **settings: Any) -> OnnxTextReader:
    """A model loaded as a reader of text."""
    found = inspected(graphs.source(file, **settings))
    assert isinstance(found.reading, ReadsText)
    return OnnxTextReader(found.graph, found.reading)


def close(found: Any, wanted: Sequence[Sequence[float]], within: float = 1e-3) -> bool:
    """Whether two arrays agree in shape, and everywhere within a tolerance."""
    expected = np.array(wanted, np.float64)
    return np.shape(found) == expected.shape and bool(np.allclose(found, expected, rtol=0, atol=within))
