"""The tasks that a class may do: what its ``predict`` is given, and who reads what it returns. One entry a task."""

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
"""What ``predict`` may take all at once, or one by one."""


class Kind(msgspec.Struct, Generic[InputT, PredictionT], frozen=True, kw_only=True, eq=False):
    """What a class of one task is asked, and how its answers are read.

    Attributes:
        task: of the servable.
        one: the name of the argument that takes one datum.
        many: the name of the argument that takes a list of them; None for a task that has one at a time.
        beside: the names of what may be taken beside it.
        values: the arguments for one datum by name. With `many`, lists of them are given.
        streamed: the name of the argument that has to be taken by a ``predict`` that yields; None where none may.
        read: an answer, its place, the datum and the model's labels to a prediction; raises `InferenceError`.
    """

    task: Task[InputT, PredictionT]
    one: str
    many: str | None
    beside: Sequence[str]
    values: Callable[[InputT], Mapping[str, object]]
    read: Callable[[object, str, InputT, Labels], PredictionT]
    streamed: str | None = None


def _of_image(item: ClassificationInput | DetectionInput | SegmentationInput) -> Mapping[str, object]:
    return {"image": item.image.pixels, "parameters": item.parameters}


def _of_prompts(item: PromptedImage) -> Mapping[str, object]:
    return {"image": item.image.pixels, PROMPTS: list(item.prompts), "parameters": item.parameters}


def _of_text(item: ClassifiedText | TaggedText | ContinuedText) -> Mapping[str, object]:
    return {"text": item.item.text, "parameters": item.parameters}


def _of_images(
    task: Task[InputT, PredictionT],
    values: Callable[[InputT], Mapping[str, object]],
    read: Callable[[object, str, InputT, Labels], PredictionT],
) -> Callable[[object], Kind[Any, Any]]:
    kind = Kind(task=task, one="image", many="images", beside=("parameters",), values=values, read=read)
    return lambda _: kind


def _of_texts(
    task: Task[InputT, PredictionT],
    values: Callable[[InputT], Mapping[str, object]],
    read: Callable[[object, str, InputT, Labels], PredictionT],
    streamed: str | None = None,
) -> Callable[[object], Kind[Any, Any]]:
    beside = ("parameters",)
    kind = Kind(task=task, one="text", many="texts", beside=beside, values=values, read=read, streamed=streamed)
    return lambda _: kind


def _of_questions(_: object) -> Kind[Any, Any]:
    return Kind(
        task=ImageTextToText(),
        one="image",
        many="images",
        beside=(PROMPTS, "parameters"),
        values=_of_prompts,
        read=read_answers,
        streamed=PROMPT,
    )


def _of_tensors(target: object) -> Kind[Any, Any]:
    inputs, outputs = (_specs(target, name) for name in ("inputs", "outputs"))

    def values(item: TensorsInput) -> Mapping[str, object]:
        return {"tensors": dict(item.tensors)}

    def read(value: object, path: str, item: TensorsInput, labels: Labels) -> Tensors:
        del item, labels
        return read_tensors(value, path, outputs)

    return Kind(
        task=TensorInference(inputs, outputs),
        one="tensors",
        many=None,
        beside=(),
        values=values,
        read=read,
    )


def _specs(target: object, name: str) -> Sequence[TensorSpec]:
    """The tensors that a class declares: a dict of (datatype, shape) by name."""
    declared: object = getattr(target, name, None)
    if not isinstance(declared, Mapping) or not declared:
        message = f'a class of the task TENSOR declares {name} = {{"x": ("FP32", (-1, 3))}}, -1 for any size'
        raise ModelError(message)
    try:
        return [
            TensorSpec(name=str(each), datatype=Datatype(datatype), shape=tuple(int(side) for side in shape))
            for each, (datatype, shape) in cast("Mapping[object, Any]", declared).items()
        ]
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name}: Expected a datatype and a shape for each, got {declared!r} ({error})") from None


KINDS: Mapping[TaskType, Callable[[object], Kind[Any, Any]]] = {
    TaskType.IMAGE_CLASSIFICATION: _of_images(ImageClassification(), _of_image, read_classification),
    TaskType.OBJECT_DETECTION: _of_images(ObjectDetection(), _of_image, read_detections),
    TaskType.ORIENTED_OBJECT_DETECTION: _of_images(OrientedObjectDetection(), _of_image, read_oriented_detections),
    TaskType.IMAGE_SEGMENTATION: _of_images(ImageSegmentation(), _of_image, read_segments),
    TaskType.IMAGE_TEXT_TO_TEXT: _of_questions,
    TaskType.TEXT_CLASSIFICATION: _of_texts(TextClassification(), _of_text, read_classification),
    TaskType.TOKEN_CLASSIFICATION: _of_texts(TokenClassification(), _of_text, read_entities),
    TaskType.TEXT_GENERATION: _of_texts(TextGeneration(), _of_text, read_generation, "text"),
    TaskType.TENSOR: _of_tensors,
}
"""By task: the kind of an object, or its class, which for some tasks declares what it takes."""
