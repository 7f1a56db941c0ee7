"""Bind an inspected vision model to its task: run its graph on images, and decode the outputs with its layout."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import ImageGraph, RawOutputs
from app.core.runtimes.onnxruntime.inspection import Inspection
from app.core.runtimes.onnxruntime.layouts.candidates import Candidates
from app.core.runtimes.onnxruntime.layouts.layout import Bound, Head, Match, RawSegments
from tasks.image_classification import Classification, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput, Segments
from tasks.inference.error import model_failed
from tasks.inference.tensor import Tensor, TensorSpec
from tasks.object_detection import DetectionInput, Detections, ObjectDetection
from tasks.oriented_object_detection import OrientedDetections, OrientedObjectDetection
from tasks.task import Model, Task, TaskType
from tasks.tensor_inference import ImageTensorInference, ImageTensorInput, ImageTensors, Tensors, TensorsInput
from tasks.vision.image import Image
from tasks.vision.request import ImageItem


class OnnxImageModel(msgspec.Struct, frozen=True, eq=False):
    """A model of images, and of the tensors of its view. `predict` makes a prediction of the outputs for one image."""

    graph: ImageGraph
    match: Match
    names: Sequence[str]
    predict: "Callable[[OnnxImageModel, Any, RawOutputs], Any]"
    image_of: Callable[[Any], Image] = attrgetter("image")

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        if inputs and isinstance(inputs[0], TensorsInput):
            specs, run = self.graph.session.outputs, self.graph.run_tensors
            return [Tensors(as_tensors(specs, run(item.tensors))) for item in inputs]
        max_images = self.graph.max_images
        predictions: list[Any] = []
        for start in range(0, len(inputs), max_images):
            batch = inputs[start : start + max_images]
            # Decoders handle values that are not finite, so that NumPy's warnings about them are noise.
            with np.errstate(all="ignore"):
                for item, answer in zip(batch, self.graph.run(list(map(self.image_of, batch))), strict=True):
                    predictions.append(self.predict(self, item, answer))
        return predictions


def task_and_model(inspection: Inspection) -> tuple[Task[Any, Any], Model[Any, Any], Any]:
    """Return the task, its model, and an input with a blank image."""
    match = inspection.match
    return (match.head or HEADS[match.task_type])(inspection.graph, match, tuple(inspection.description.labels))


def blank_image(graph: ImageGraph) -> Image:
    """Return a black image of the size of the graph's input."""
    return Image(np.zeros((graph.preprocessing.height, graph.preprocessing.width, 3), np.uint8))


def _detections(model: OnnxImageModel, item: DetectionInput, answer: RawOutputs) -> Detections:
    candidates: Candidates = model.match.decode(answer, item)
    keypoints = None
    if model.match.keypoints is not None:
        points = candidates.extras.reshape(-1, *model.match.keypoints)
        keypoints = answer.placement.keypoints_to_image(points)
    return Detections(
        labels=_names_of(candidates.class_ids.tolist(), model.names),
        scores=candidates.scores,
        boxes=answer.placement.boxes_to_image(candidates.boxes),
        keypoints=keypoints,
    )


def _oriented_detections(model: OnnxImageModel, item: DetectionInput, answer: RawOutputs) -> OrientedDetections:
    candidates: Candidates = model.match.decode(answer, item)
    return OrientedDetections(
        labels=_names_of(candidates.class_ids.tolist(), model.names),
        scores=candidates.scores,
        boxes=answer.placement.rotated_boxes_to_image(candidates.boxes),
        width=item.image.width,
        height=item.image.height,
    )


def _segments(model: OnnxImageModel, item: SegmentationInput, answer: RawOutputs) -> Segments:
    outline: RawSegments = model.match.decode(answer, item)
    labels = _names_of(outline.class_ids.tolist(), model.names)
    return Segments(labels=labels, scores=outline.scores, contours=outline.contours, pixel_scores=outline.pixel_scores)


def _head(
    create_task: Callable[[Match], Task[Any, Any]], predict: Callable[[OnnxImageModel, Any, RawOutputs], Any]
) -> Head:
    def bind(graph: ImageGraph, match: Match, names: Sequence[str]) -> Bound:
        task = create_task(match)
        parameters: Any = task.parameters_type()
        item = ImageItem(blank_image(graph), parameters, parameters.score_threshold)
        return task, OnnxImageModel(graph, match, names, predict), item

    return bind


def _tensor_head(graph: ImageGraph, match: Match, names: Sequence[str]) -> Bound:
    outputs = graph.output_specs()

    def predict(_: OnnxImageModel, __: ImageTensorInput, answer: RawOutputs) -> ImageTensors:
        return ImageTensors(as_tensors(outputs, answer.outputs))

    model = OnnxImageModel(graph, match, names, predict)
    return ImageTensorInference(outputs), model, ImageTensorInput(blank_image(graph))


HEADS: Mapping[TaskType, Head] = {
    TaskType.IMAGE_CLASSIFICATION: _head(
        lambda _: ImageClassification(),
        lambda model, _, answer: Classification(labels=model.names, scores=model.match.decode(answer)),
    ),
    TaskType.OBJECT_DETECTION: _head(lambda match: ObjectDetection(keypoints=match.keypoints), _detections),
    TaskType.ORIENTED_OBJECT_DETECTION: _head(lambda _: OrientedObjectDetection(), _oriented_detections),
    TaskType.IMAGE_SEGMENTATION: _head(lambda _: ImageSegmentation(), _segments),
    TaskType.TENSOR: _tensor_head,
}
"""The heads of layouts that bring none, by their task."""


def as_tensors(specs: Sequence[TensorSpec], arrays: Sequence[NDArray[Any]]) -> list[Tensor]:
    """Return outputs of a graph as tensors. Strings, which ONNX Runtime returns as `str`, become `bytes`."""
    tensors: list[Tensor] = []
    for spec, array in zip(specs, map(np.asarray, arrays), strict=True):
        data = array
        if array.dtype.kind in "OUS":
            texts: list[str | bytes] = array.ravel().tolist()
            data = np.empty(array.size, object)
            data[:] = [text.encode() if isinstance(text, str) else bytes(text) for text in texts]
            data = data.reshape(array.shape)
        tensors.append(Tensor(name=spec.name, datatype=spec.datatype, data=data))
    return tensors


def _names_of(class_ids: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return the name of each class. If the model has no names, the number of a class is its name.

    Raise MODEL_FAILED for a number without a name.
    """
    if not names:
        return [str(class_id) for class_id in class_ids]
    for class_id in class_ids:
        if not 0 <= class_id < len(names):
            raise model_failed(f"The model returned class number {class_id}, but has only {len(names)} labels")
    return list(map(names.__getitem__, class_ids))
