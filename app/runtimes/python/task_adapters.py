"""Adapt each task to ``predict``: the arguments that it takes, and the function that reads its return value."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from app.runtimes.python.answers.boxes import read_detections, read_oriented_detections
from app.runtimes.python.answers.image_classification import read_classification
from app.runtimes.python.answers.image_segmentation import read_segments
from app.runtimes.python.answers.tensor import read_tensors
from app.runtimes.python.answers.text import read_answers, read_entities, read_generation
from app.runtimes.python.answers.value_parsing import ClassNames
from app.settings.model import ModelError
from tasks.image_classification import ClassificationInput, ImageClassification
from tasks.image_segmentation import ImageSegmentation, SegmentationInput
from tasks.image_text_to_text import ImageTextToText, PromptedImage
from tasks.inference.response import Prediction
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.object_detection import DetectionInput, ObjectDetection
from tasks.oriented_object_detection import OrientedObjectDetection
from tasks.task import Task, TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tasks.text.conversation import reject_conversation
from tasks.text_classification import ClassifiedText, TextClassification
from tasks.text_generation import ContinuedText, TextGeneration, TextGenerationParameters
from tasks.token_classification import TaggedText, TokenClassification

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)

PROMPTS, PROMPT = "prompts", "prompt"
"""The arguments of ``predict`` for all prompts of an image, or for one prompt a call."""


class TaskAdapter(msgspec.Struct, Generic[InputT, PredictionT], frozen=True, kw_only=True, eq=False):
    """The arguments of ``predict`` for one task, and the reader of its answers.

    Attributes:
        task: task of the servable.
        sample_argument: name of the argument for one sample.
        arguments: function that returns the arguments for one sample by name. A batch passes lists of them.
        parse: function of an answer, its path, the sample and the model's labels that returns the prediction. Raises
            `InferenceError`.
        batch_argument: name of the argument for a list of samples; None for a task without batches.
        optional_arguments: names of the optional arguments.
        streaming_argument: name of the argument that a ``predict`` that yields must take; None if it must not yield.
    """

    task: Task[InputT, PredictionT]
    sample_argument: str
    arguments: Callable[[InputT], Mapping[str, object]]
    parse: Callable[[object, str, InputT, ClassNames], PredictionT]
    batch_argument: str | None = None
    optional_arguments: Sequence[str] = ("parameters",)
    streaming_argument: str | None = None


def _image_arguments(item: ClassificationInput | DetectionInput | SegmentationInput) -> Mapping[str, object]:
    return {"image": item.image.pixels, "parameters": item.parameters}


def _prompt_arguments(item: PromptedImage) -> Mapping[str, object]:
    reject_conversation(item.parameters.messages, item.path)
    return {"image": item.image.pixels, PROMPTS: list(item.prompts), "parameters": item.parameters}


def _text_arguments(item: ClassifiedText | TaggedText | ContinuedText) -> Mapping[str, object]:
    if isinstance(item.parameters, TextGenerationParameters):
        reject_conversation(item.parameters.messages, "messages")
    return {"text": item.item.text, "parameters": item.parameters}


def _adapter(
    sample: str,
    arguments: Callable[[InputT], Mapping[str, object]],
    task: Task[InputT, PredictionT],
    parse: Callable[[object, str, InputT, ClassNames], PredictionT],
    optional_arguments: Sequence[str] = ("parameters",),
    streaming: str | None = None,
) -> Callable[[object], TaskAdapter[Any, Any]]:
    adapter = TaskAdapter(
        task=task,
        sample_argument=sample,
        arguments=arguments,
        parse=parse,
        batch_argument=f"{sample}s",
        optional_arguments=optional_arguments,
        streaming_argument=streaming,
    )
    return lambda _: adapter


def _tensor_adapter(target: object) -> TaskAdapter[Any, Any]:
    inputs, outputs = (_specs(target, name) for name in ("inputs", "outputs"))

    def arguments(item: TensorsInput) -> Mapping[str, object]:
        return {"tensors": dict(item.tensors)}

    def parse(value: object, path: str, item: TensorsInput, labels: ClassNames) -> Tensors:
        del item, labels
        return read_tensors(value, path, outputs)

    return TaskAdapter(
        task=TensorInference(inputs, outputs, binary=True),
        sample_argument="tensors",
        arguments=arguments,
        parse=parse,
        optional_arguments=(),
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


TASK_ADAPTERS: Mapping[TaskType, Callable[[object], TaskAdapter[Any, Any]]] = {
    TaskType.IMAGE_CLASSIFICATION: _adapter("image", _image_arguments, ImageClassification(), read_classification),
    TaskType.OBJECT_DETECTION: _adapter("image", _image_arguments, ObjectDetection(), read_detections),
    TaskType.ORIENTED_OBJECT_DETECTION: _adapter(
        "image", _image_arguments, OrientedObjectDetection(), read_oriented_detections
    ),
    TaskType.IMAGE_SEGMENTATION: _adapter("image", _image_arguments, ImageSegmentation(), read_segments),
    TaskType.IMAGE_TEXT_TO_TEXT: _adapter(
        "image", _prompt_arguments, ImageTextToText(), read_answers, (PROMPTS, "parameters"), streaming=PROMPT
    ),
    TaskType.TEXT_CLASSIFICATION: _adapter("text", _text_arguments, TextClassification(), read_classification),
    TaskType.TOKEN_CLASSIFICATION: _adapter("text", _text_arguments, TokenClassification(), read_entities),
    TaskType.TEXT_GENERATION: _adapter("text", _text_arguments, TextGeneration(), read_generation, streaming="text"),
    TaskType.TENSOR: _tensor_adapter,
}
"""For each task, a function of the object or its class. A class of the task TENSOR declares its tensors."""
