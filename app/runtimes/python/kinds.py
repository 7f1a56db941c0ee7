"""Adapt each task to ``predict``: the arguments that it takes, and the function that reads its return value."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from app.runtimes.python.answers.image_classification import read_classification
from app.runtimes.python.answers.image_segmentation import read_segments
from app.runtimes.python.answers.image_text_to_text import read_answers
from app.runtimes.python.answers.object_detection import read_detections
from app.runtimes.python.answers.oriented_object_detection import read_oriented_detections
from app.runtimes.python.answers.reading import Labels
from app.runtimes.python.answers.tensor import read_tensors
from app.runtimes.python.answers.text import read_entities, read_generation
from app.settings.model import ModelError
from tasks.exchange.response import Prediction
from tasks.exchange.tensor import Datatype, TensorSpec
from tasks.image_classification import ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput
from tasks.image_text_to_text import ImageTextToText, PromptedImage
from tasks.object_detection import DetectionInput, ObjectDetection
from tasks.oriented_object_detection import OrientedObjectDetection
from tasks.task import Task, TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tasks.text_classification import ClassifiedText, TextClassification
from tasks.text_generation import ContinuedText, TextGeneration
from tasks.token_classification import TaggedText, TokenClassification

__all__ = ("KINDS", "PROMPT", "PROMPTS", "Kind")

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)

PROMPTS, PROMPT = "prompts", "prompt"
"""The arguments of ``predict`` for all prompts of an image, or for one prompt a call."""


class Kind(msgspec.Struct, Generic[InputT, PredictionT], frozen=True, kw_only=True, eq=False):
    """The arguments of ``predict`` for one task, and the reader of its answers.

    Attributes:
        task: task of the servable.
        one: name of the argument for one sample.
        many: name of the argument for a list of samples; None for a task without batches.
        beside: names of the optional arguments.
        values: function that returns the arguments for one sample by name. A batch passes lists of them.
        streamed: name of the argument that a ``predict`` that yields must take; None if it must not yield.
        read: function of an answer, its path, the sample and the model's labels that returns the prediction. Raises
            `InferenceError`.
    """

    task: Task[InputT, PredictionT]
    one: str
    many: str | None
    beside: Sequence[str]
    values: Callable[[InputT], Mapping[str, object]]
    read: Callable[[object, str, InputT, Labels], PredictionT]
    streamed: str | None = None


def _image_values(item: ClassificationInput | DetectionInput | SegmentationInput) -> Mapping[str, object]:
    return {"image": item.image.pixels, "parameters": item.parameters}


def _prompt_values(item: PromptedImage) -> Mapping[str, object]:
    return {"image": item.image.pixels, PROMPTS: list(item.prompts), "parameters": item.parameters}


def _text_values(item: ClassifiedText | TaggedText | ContinuedText) -> Mapping[str, object]:
    return {"text": item.item.text, "parameters": item.parameters}


def _image_kind(
    task: Task[InputT, PredictionT],
    values: Callable[[InputT], Mapping[str, object]],
    read: Callable[[object, str, InputT, Labels], PredictionT],
) -> Callable[[object], Kind[Any, Any]]:
    kind = Kind(task=task, one="image", many="images", beside=("parameters",), values=values, read=read)
    return lambda _: kind


def _text_kind(
    task: Task[InputT, PredictionT],
    values: Callable[[InputT], Mapping[str, object]],
    read: Callable[[object, str, InputT, Labels], PredictionT],
    streamed: str | None = None,
) -> Callable[[object], Kind[Any, Any]]:
    beside = ("parameters",)
    kind = Kind(task=task, one="text", many="texts", beside=beside, values=values, read=read, streamed=streamed)
    return lambda _: kind


def _prompted_image_kind(_: object) -> Kind[Any, Any]:
    return Kind(
        task=ImageTextToText(),
        one="image",
        many="images",
        beside=(PROMPTS, "parameters"),
        values=_prompt_values,
        read=read_answers,
        streamed=PROMPT,
    )


def _tensor_kind(target: object) -> Kind[Any, Any]:
    inputs, outputs = (_specs(target, name) for name in ("inputs", "outputs"))

    def values(item: TensorsInput) -> Mapping[str, object]:
        return {"tensors": dict(item.tensors)}

    def read(value: object, path: str, item: TensorsInput, labels: Labels) -> Tensors:
        del item, labels
        return read_tensors(value, path, outputs)

    return Kind(
        task=TensorInference(inputs, outputs, binary=True),
        one="tensors",
        many=None,
        beside=(),
        values=values,
        read=read,
    )


def _specs(target: object, name: str) -> Sequence[TensorSpec]:
    """Read the tensors that a class declares: a dict of (datatype, shape) by name."""
    declared: object = getattr(target, name, None)
    if not isinstance(declared, Mapping) or not declared:
        message = f'a class of the task TENSOR must declare {name}, as in {{"x": ("FP32", (-1, 3))}}; -1 is any size'
        raise ModelError(message)
    try:
        return [
            TensorSpec(name=str(tensor), datatype=Datatype(datatype), shape=tuple(int(side) for side in shape))
            for tensor, (datatype, shape) in cast("Mapping[object, Any]", declared).items()
        ]
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name}: Expected a datatype and a shape for each, got {declared!r} ({error})") from None


KINDS: Mapping[TaskType, Callable[[object], Kind[Any, Any]]] = {
    TaskType.IMAGE_CLASSIFICATION: _image_kind(ImageClassification(), _image_values, read_classification),
    TaskType.OBJECT_DETECTION: _image_kind(ObjectDetection(), _image_values, read_detections),
    TaskType.ORIENTED_OBJECT_DETECTION: _image_kind(OrientedObjectDetection(), _image_values, read_oriented_detections),
    TaskType.IMAGE_SEGMENTATION: _image_kind(ImageSegmentation(), _image_values, read_segments),
    TaskType.IMAGE_TEXT_TO_TEXT: _prompted_image_kind,
    TaskType.TEXT_CLASSIFICATION: _text_kind(TextClassification(), _text_values, read_classification),
    TaskType.TOKEN_CLASSIFICATION: _text_kind(TokenClassification(), _text_values, read_entities),
    TaskType.TEXT_GENERATION: _text_kind(TextGeneration(), _text_values, read_generation, "text"),
    TaskType.TENSOR: _tensor_kind,
}
"""For each task, a function of the object or its class. A class of the task TENSOR declares its tensors."""
