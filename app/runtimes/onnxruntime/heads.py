"""Bind an inspected vision model to its task: run its graph on images, and decode the outputs with its layout."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeVar

import msgspec
import numpy as np

from app.engine.models.servable import Servable
from app.runtimes.onnxruntime.graph import ImageGraph, RawOutputs
from app.runtimes.onnxruntime.inspection import Inspection
from app.runtimes.onnxruntime.labels import Labels
from app.runtimes.onnxruntime.layouts.layout import (
    BoxDecoder,
    ClassDecoder,
    MaskDecoder,
    OrientedBoxDecoder,
    TensorDecoder,
    TextDecoder,
)
from app.settings.model import ModelError, ModelSource
from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, SegmentationParameters, Segments
from tasks.image_text_to_text import DEFAULT_PROMPT, Answers, GenerationParameters, ImageTextToText, PromptedImage
from tasks.inference.error import InferenceError
from tasks.inference.response import Prediction
from tasks.inference.tensor import Tensor, TensorSpec
from tasks.object_detection import DetectionInput, DetectionParameters, Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.task import Model, Task
from tasks.tensor_inference import ImageTensorInference, ImageTensorInput, ImageTensors
from tasks.text.conversation import reject_conversation
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)

_image = attrgetter("image")


class OnnxImageClassifier(msgspec.Struct, frozen=True, eq=False):
    """An `ImageClassifier`."""

    graph: ImageGraph
    labels: Labels
    decoder: ClassDecoder

    def __call__(self, inputs: Sequence[ClassificationInput], /) -> Sequence[Classification]:
        return [
            Classification(labels=self.labels.names, scores=self.decoder.decode(answer))
            for answer in self.graph.run(list(map(_image, inputs)))
        ]


class OnnxObjectDetector(msgspec.Struct, frozen=True, eq=False):
    """An `ObjectDetector` with upright boxes."""

    graph: ImageGraph
    labels: Labels
    decoder: BoxDecoder

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        answers = self.graph.run(list(map(_image, inputs)))
        detections: list[Detections] = []
        for item, answer in zip(inputs, answers, strict=True):
            detections.append(self._detections(item, answer))
        return detections

    def _detections(self, item: DetectionInput, answer: RawOutputs) -> Detections:
        candidates = self.decoder.decode(answer, item.parameters)
        keypoints = None
        if self.decoder.keypoints is not None:
            points = candidates.extras.reshape(-1, *self.decoder.keypoints)
            keypoints = answer.placement.keypoints_to_image(points)
        return Detections(
            labels=self.labels.of(candidates.class_ids.tolist()),
            scores=candidates.scores,
            boxes=answer.placement.boxes_to_image(candidates.boxes),
            keypoints=keypoints,
        )


class OnnxOrientedObjectDetector(msgspec.Struct, frozen=True, eq=False):
    """An `OrientedObjectDetector`."""

    graph: ImageGraph
    labels: Labels
    decoder: OrientedBoxDecoder

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[OrientedDetections]:
        answers = self.graph.run(list(map(_image, inputs)))
        return [self._detections(item, answer) for item, answer in zip(inputs, answers, strict=True)]

    def _detections(self, item: DetectionInput, answer: RawOutputs) -> OrientedDetections:
        candidates = self.decoder.decode(answer, item.parameters)
        return OrientedDetections(
            labels=self.labels.of(candidates.class_ids.tolist()),
            scores=candidates.scores,
            boxes=answer.placement.rotated_boxes_to_image(candidates.boxes),
            width=item.image.width,
            height=item.image.height,
        )


class OnnxImageSegmenter(msgspec.Struct, frozen=True, eq=False):
    """An `ImageSegmenter`."""

    graph: ImageGraph
    labels: Labels
    decoder: MaskDecoder

    def __call__(self, inputs: Sequence[SegmentationInput], /) -> Sequence[Segments]:
        answers = self.graph.run(list(map(_image, inputs)))
        outlines = [self.decoder.decode(answer, item) for item, answer in zip(inputs, answers, strict=True)]
        return [
            Segments(
                labels=self.labels.of(outline.class_ids.tolist()), scores=outline.scores, contours=outline.contours
            )
            for outline in outlines
        ]


class OnnxImageTensorModel(msgspec.Struct, frozen=True, eq=False):
    """An `ImageTensorModel`, which returns the outputs of the graph as they are."""

    graph: ImageGraph
    outputs: Sequence[TensorSpec]

    def __call__(self, inputs: Sequence[ImageTensorInput], /) -> Sequence[ImageTensors]:
        return [
            ImageTensors(
                [
                    Tensor(name=spec.name, datatype=spec.datatype, data=np.asarray(array))
                    for spec, array in zip(self.outputs, answer.outputs, strict=True)
                ]
            )
            for answer in self.graph.run(list(map(_image, inputs)))
        ]


class OnnxTextReader(msgspec.Struct, frozen=True, eq=False):
    """A `VisionLanguageModel` that answers every prompt with the text in the image, which has one line."""

    graph: ImageGraph
    decoder: TextDecoder

    def __call__(self, inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        for item in inputs:
            reject_conversation(item.parameters.messages, item.path)
        texts = [self.decoder.decode(answer) for answer in self.graph.run(list(map(_image, inputs)))]
        return [
            Answers(prompts=item.prompts, answers=[text] * len(item.prompts))
            for item, text in zip(inputs, texts, strict=True)
        ]


def bind_vision_model(source: ModelSource, inspection: Inspection) -> Servable:
    """Bind an inspected model to its task, and test it with a blank image.

    Raises:
        ModelError: if the test fails.
    """
    graph, labels = inspection.graph, inspection.labels
    blank = Image(np.zeros((graph.height, graph.width, 3), np.uint8))
    detection = DetectionInput(blank, DetectionParameters())

    def bind(task: Task[InputT, PredictionT], model: Model[InputT, PredictionT], blank_input: InputT) -> Servable:
        try:
            model([blank_input])
        except InferenceError as error:
            raise ModelError(f"{source.folder}: the model cannot answer a blank image: {error.message}") from None
        downscale = graph.downscale if source.settings.preprocessing.reduced_decode else None
        return Servable(task, model, inspection.description, source.settings.parameters, downscale)

    match inspection.decoder:
        case ClassDecoder() as decoder:
            classified = ClassificationInput(blank, SelectionParameters())
            return bind(ImageClassification(), OnnxImageClassifier(graph, labels, decoder), classified)
        case BoxDecoder() as decoder:
            detector = OnnxObjectDetector(graph, labels, decoder)
            return bind(ObjectDetection(keypoints=decoder.keypoints), detector, detection)
        case OrientedBoxDecoder() as decoder:
            return bind(OrientedObjectDetection(), OnnxOrientedObjectDetector(graph, labels, decoder), detection)
        case MaskDecoder() as decoder:
            segmentation = SegmentationInput(blank, SegmentationParameters())
            return bind(ImageSegmentation(), OnnxImageSegmenter(graph, labels, decoder), segmentation)
        case TextDecoder() as decoder:
            prompted = PromptedImage((blank,), (DEFAULT_PROMPT,), GenerationParameters())
            return bind(ImageTextToText(), OnnxTextReader(graph, decoder), prompted)
        case TensorDecoder():
            outputs = graph.output_specs()
            tensors = OnnxImageTensorModel(graph, outputs)
            return bind(ImageTensorInference(outputs), tensors, ImageTensorInput(blank))
