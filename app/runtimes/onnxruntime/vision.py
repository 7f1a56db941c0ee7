"""Vision models of one graph, made ready to answer."""

from typing import TypeVar

import numpy as np

from app.engine.servable import BoundServable, Servable
from app.runtimes.onnxruntime.heads.classification import OnnxImageClassifier
from app.runtimes.onnxruntime.heads.detection import OnnxObjectDetector
from app.runtimes.onnxruntime.heads.oriented_detection import OnnxOrientedObjectDetector
from app.runtimes.onnxruntime.heads.segmentation import OnnxImageSegmenter
from app.runtimes.onnxruntime.inspection import Inspection
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import InferenceError
from tasks.exchange.response import Prediction
from tasks.image_classification import ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters
from tasks.object_detection import DetectionInput, DetectionParameters, ObjectDetection
from tasks.oriented_object_detection import OrientedObjectDetection
from tasks.task import Model, Task, TaskType
from tasks.vision.image import Image
from tasks.vision.selection import SelectionParameters

__all__ = ("bind_vision_model",)

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)


def bind_vision_model(source: ModelSource, inspection: Inspection) -> Servable:
    """Make a model that is understood ready to answer, and let it answer a blank picture once.

    Raises:
        ModelError: when it cannot answer.
    """
    graph, labels, layout = inspection.graph, inspection.labels, inspection.layout
    blank = Image(np.zeros((graph.height, graph.width, 3), np.uint8))
    detection = DetectionInput(blank, DetectionParameters())
    match inspection.description.task_type:
        case TaskType.IMAGE_CLASSIFICATION:
            classifier = OnnxImageClassifier(graph, labels, logits=layout.name == "logits")
            return _bind(
                ImageClassification(), classifier, ClassificationInput(blank, SelectionParameters()), source, inspection
            )
        case TaskType.OBJECT_DETECTION:
            return _bind(ObjectDetection(), OnnxObjectDetector(graph, labels, layout), detection, source, inspection)
        case TaskType.ORIENTED_OBJECT_DETECTION:
            oriented = OnnxOrientedObjectDetector(graph, labels, layout)
            return _bind(OrientedObjectDetection(), oriented, detection, source, inspection)
        case TaskType.IMAGE_SEGMENTATION:
            segmenter = OnnxImageSegmenter(graph, labels, layout)
            segmentation = SegmentationInput(blank, SegmentationParameters())
            return _bind(ImageSegmentation(), segmenter, segmentation, source, inspection)
        case TaskType.IMAGE_TEXT_TO_TEXT | TaskType.TENSOR as other:
            raise ModelError(f"{source.folder}: {other} is not a task of a vision model of one graph")


def _bind(
    task: Task[InputT, PredictionT],
    model: Model[InputT, PredictionT],
    blank: InputT,
    source: ModelSource,
    inspection: Inspection,
) -> Servable:
    try:
        model([blank])
    except InferenceError as error:
        raise ModelError(f"{source.folder}: the model cannot answer a blank image: {error.message}") from None
    return BoundServable(task, model, inspection.description, source.settings.parameters)
