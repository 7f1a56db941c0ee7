"""Bind an inspected vision model to its task."""

from typing import TypeVar

import numpy as np

from app.engine.models.servable import Servable
from app.runtimes.onnxruntime.heads.classification import OnnxImageClassifier
from app.runtimes.onnxruntime.heads.detection import OnnxObjectDetector
from app.runtimes.onnxruntime.heads.oriented_detection import OnnxOrientedObjectDetector
from app.runtimes.onnxruntime.heads.segmentation import OnnxImageSegmenter
from app.runtimes.onnxruntime.heads.tensors import OnnxImageTensorModel
from app.runtimes.onnxruntime.heads.text_reading import OnnxTextReader
from app.runtimes.onnxruntime.inspection import Inspection
from app.runtimes.onnxruntime.layouts.layout import (
    BoxDecoder,
    ClassDecoder,
    MaskDecoder,
    OrientedBoxDecoder,
    TensorDecoder,
    TextDecoder,
)
from app.settings.model import ModelError, ModelSource
from tasks.image_classification import ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters
from tasks.image_text_to_text import DEFAULT_PROMPT, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import InferenceError
from tasks.inference.response import Prediction
from tasks.object_detection import DetectionInput, DetectionParameters, ObjectDetection
from tasks.oriented_object_detection import OrientedObjectDetection
from tasks.task import Model, Task
from tasks.tensor_inference import ImageTensorInference, ImageTensorInput
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

__all__ = ("bind_vision_model",)

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)


def bind_vision_model(source: ModelSource, inspection: Inspection) -> Servable:
    """Bind an inspected model to its task, and test it with a blank image.

    Raises:
        ModelError: if the test fails.
    """
    graph, labels = inspection.graph, inspection.labels
    blank = Image(np.zeros((graph.height, graph.width, 3), np.uint8))
    detection = DetectionInput(blank, DetectionParameters())
    match inspection.decoder:
        case ClassDecoder() as decoder:
            classifier = OnnxImageClassifier(graph, labels, decoder)
            classified = ClassificationInput(blank, SelectionParameters())
            return _bind(ImageClassification(), classifier, classified, source, inspection)
        case BoxDecoder() as decoder:
            detector = OnnxObjectDetector(graph, labels, decoder)
            detecting = ObjectDetection(keypoints=decoder.keypoints)
            return _bind(detecting, detector, detection, source, inspection)
        case OrientedBoxDecoder() as decoder:
            oriented = OnnxOrientedObjectDetector(graph, labels, decoder)
            return _bind(OrientedObjectDetection(), oriented, detection, source, inspection)
        case MaskDecoder() as decoder:
            segmenter = OnnxImageSegmenter(graph, labels, decoder)
            segmentation = SegmentationInput(blank, SegmentationParameters())
            return _bind(ImageSegmentation(), segmenter, segmentation, source, inspection)
        case TextDecoder() as decoder:
            prompted = PromptedImage(blank, (DEFAULT_PROMPT,), GenerationParameters())
            return _bind(ImageTextToText(), OnnxTextReader(graph, decoder), prompted, source, inspection)
        case TensorDecoder():
            outputs = graph.output_specs()
            tensors = OnnxImageTensorModel(graph, outputs)
            return _bind(ImageTensorInference(outputs), tensors, ImageTensorInput(blank), source, inspection)


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
    downscale = inspection.graph.downscale if source.settings.preprocessing.reduced_decode else None
    return Servable(task, model, inspection.description, source.settings.parameters, downscale)
