"""Bind an inspected vision model to its task: run its graph on images, and decode the outputs with its layout."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from app.runtimes.onnxruntime.graph import ImageGraph, RawOutputs
from app.runtimes.onnxruntime.inspection import Inspection
from app.runtimes.onnxruntime.layouts.layout import (
    BoxDecoder,
    ClassDecoder,
    MaskDecoder,
    OrientedBoxDecoder,
    TensorDecoder,
    TextDecoder,
)
from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters, Segments
from tasks.image_text_to_text import DEFAULT_PROMPT, Answers, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.tensor import Tensor, TensorSpec
from tasks.object_detection import DetectionInput, DetectionParameters, Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.task import Task
from tasks.tensor_inference import ImageTensorInference, ImageTensorInput, ImageTensors
from tasks.text.generation import reject_conversation
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT")


class OnnxImageModel(msgspec.Struct, Generic[InputT, PredictionT], frozen=True, eq=False):
    """A model of images. `predict` converts the outputs for one input to its prediction."""

    graph: ImageGraph
    predict: Callable[[InputT, RawOutputs], PredictionT]
    image_of: Callable[[InputT], Image] = attrgetter("image")

    def __call__(self, inputs: Sequence[InputT], /) -> Sequence[PredictionT]:
        answers = self.graph.run(list(map(self.image_of, inputs)))
        predictions: list[PredictionT] = []
        for item, answer in zip(inputs, answers, strict=True):
            predictions.append(self.predict(item, answer))
        return predictions


def task_and_model(inspection: Inspection) -> tuple[Task[Any, Any], OnnxImageModel[Any, Any], Any]:
    """Return the task, its model, and an input with a blank image."""
    graph, names = inspection.graph, tuple(inspection.description.labels)
    blank = Image(np.zeros((graph.preprocessing.height, graph.preprocessing.width, 3), np.uint8))
    detection = DetectionInput(blank, DetectionParameters())
    match inspection.decoder:
        case ClassDecoder() as decoder:
            classifier = OnnxImageModel(graph, partial(_classification, names=names, decoder=decoder))
            return ImageClassification(), classifier, ClassificationInput(blank, SelectionParameters())
        case BoxDecoder() as decoder:
            detector = OnnxImageModel(graph, partial(_detections, names=names, decoder=decoder))
            return ObjectDetection(keypoints=decoder.keypoints), detector, detection
        case OrientedBoxDecoder() as decoder:
            oriented = OnnxImageModel(graph, partial(_oriented_detections, names=names, decoder=decoder))
            return OrientedObjectDetection(), oriented, detection
        case MaskDecoder() as decoder:
            segmenter = OnnxImageModel(graph, partial(_segments, names=names, decoder=decoder))
            return ImageSegmentation(), segmenter, SegmentationInput(blank, SegmentationParameters())
        case TextDecoder() as decoder:
            reader = OnnxImageModel(graph, partial(_text_answers, decoder=decoder), _only_image)
            return ImageTextToText(), reader, PromptedImage((blank,), (DEFAULT_PROMPT,), GenerationParameters())
        case TensorDecoder():
            outputs = graph.output_specs()
            tensors = OnnxImageModel(graph, partial(_tensors, outputs=outputs))
            return ImageTensorInference(outputs), tensors, ImageTensorInput(blank)


def _classification(
    item: ClassificationInput, answer: RawOutputs, *, names: Sequence[str], decoder: ClassDecoder
) -> Classification:
    del item
    return Classification(labels=names, scores=decoder.decode(answer))


def _detections(item: DetectionInput, answer: RawOutputs, *, names: Sequence[str], decoder: BoxDecoder) -> Detections:
    candidates = decoder.decode(answer, item.parameters)
    keypoints = None
    if decoder.keypoints is not None:
        points = candidates.extras.reshape(-1, *decoder.keypoints)
        keypoints = answer.placement.keypoints_to_image(points)
    return Detections(
        labels=_names_of(candidates.class_ids.tolist(), names),
        scores=candidates.scores,
        boxes=answer.placement.boxes_to_image(candidates.boxes),
        keypoints=keypoints,
    )


def _oriented_detections(
    item: DetectionInput, answer: RawOutputs, *, names: Sequence[str], decoder: OrientedBoxDecoder
) -> OrientedDetections:
    candidates = decoder.decode(answer, item.parameters)
    return OrientedDetections(
        labels=_names_of(candidates.class_ids.tolist(), names),
        scores=candidates.scores,
        boxes=answer.placement.rotated_boxes_to_image(candidates.boxes),
        width=item.image.width,
        height=item.image.height,
    )


def _segments(item: SegmentationInput, answer: RawOutputs, *, names: Sequence[str], decoder: MaskDecoder) -> Segments:
    outline = decoder.decode(answer, item)
    labels = _names_of(outline.class_ids.tolist(), names)
    return Segments(labels=labels, scores=outline.scores, contours=outline.contours)


def _only_image(item: PromptedImage) -> Image:
    reject_conversation(item.parameters.messages, item.path)
    return item.image


def _text_answers(item: PromptedImage, answer: RawOutputs, *, decoder: TextDecoder) -> Answers:
    """Answer every prompt with the text in the image, which has one line."""
    return Answers(prompts=item.prompts, answers=[decoder.decode(answer)] * len(item.prompts))


def _tensors(item: ImageTensorInput, answer: RawOutputs, *, outputs: Sequence[TensorSpec]) -> ImageTensors:
    """Return the outputs of the graph as they are."""
    del item
    return ImageTensors(
        [
            Tensor(name=spec.name, datatype=spec.datatype, data=np.asarray(array))
            for spec, array in zip(outputs, answer.outputs, strict=True)
        ]
    )


def _names_of(class_ids: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return the name of each class. If the model has no names, the number of a class is its name.

    Raises:
        InferenceError: MODEL_FAILED for a number without a name.
    """
    if not names:
        return [str(class_id) for class_id in class_ids]
    for class_id in class_ids:
        if not 0 <= class_id < len(names):
            message = f"The model returned class number {class_id}, but has only {len(names)} labels"
            raise InferenceError(ErrorKind.MODEL_FAILED, message)
    return list(map(names.__getitem__, class_ids))
