"""Adapt each task to ``predict``: the arguments that it takes, and the function that reads its return value.

The names in its signature determine how it is called.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, partialmethod
from typing import Any, cast

import msgspec

from app.core.plugins import registry
from app.core.removed import removed_advice
from app.core.runtimes.python.outputs.image_objects import read_detections, read_oriented_detections, read_segments
from app.core.runtimes.python.outputs.labelled_scores import read_classification
from app.core.runtimes.python.outputs.tensor import read_tensors
from app.core.runtimes.python.outputs.text import read_answers, read_generation
from app.core.runtimes.python.outputs.value_parsing import ClassNames
from app.core.settings.model import ModelError
from tasks.image_classification import ImageClassification
from tasks.image_segmentation import ImageSegmentation
from tasks.image_text_to_text import ImageTextToText, PromptedImage
from tasks.inference.response import Prediction
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.object_detection import ObjectDetection
from tasks.oriented_object_detection import OrientedObjectDetection
from tasks.task import Task, TaskType
from tasks.tensor_inference import TensorInference, Tensors, TensorsInput
from tasks.text.generation import JSON_SCHEMA, SamplingParameters, reject_conversation, reject_schema
from tasks.text_generation import ContinuedText, TextGeneration
from tasks.vision.request import ImageItem

PROMPTS, PROMPT = "prompts", "prompt"
"""The arguments of ``predict`` for all prompts of an image, or for one prompt a call."""
_TENSORS = "tensors"
INPUTS, PREDICTIONS = "inputs", "predictions"
"""The arguments of ``explain`` for what ``predict`` got, and for what it returned."""


class PythonLibrary(msgspec.Struct, frozen=True):
    """How objects of a library become models and answers of the Python runtime. Other objects stay unchanged.

    Attributes:
        model: function of what the model's class or function returned; returns an object with ``predict``.
        answer: function of what ``predict`` returned, its path in errors and the task; returns a form that the reader
            of the task knows.
    """

    model: Callable[[object], object] = lambda target: target
    answer: Callable[[object, str, TaskType], object] = lambda answer, _, __: answer


class TaskAdapter(msgspec.Struct, frozen=True, eq=False):
    """The arguments of ``predict`` for one task, and the reader of its answers.

    Attributes:
        task: task of the servable.
        sample_argument: name of the argument for one sample.
        arguments: function that returns the arguments for one sample by name. A batch passes lists of them.
        parse: function of an answer, its path, the sample and the model's labels that returns the prediction. Raises
            `InferenceError`.
        optional_arguments: names of the optional arguments.
        streaming_argument: name of the argument that a ``predict`` that yields must take; None if it must not yield.
    """

    task: Task[Any, Any]
    sample_argument: str
    arguments: Callable[[Any], Mapping[str, object]]
    parse: Callable[[object, str, Any, ClassNames], Prediction]
    optional_arguments: Sequence[str] = ("parameters",)
    streaming_argument: str | None = None

    @property
    def batch_argument(self) -> str | None:
        """Return the name of the argument for a list of samples; None for tensors, which are batches themselves."""
        return None if self.sample_argument == _TENSORS else f"{self.sample_argument}s"


def _image_arguments(item: ImageItem[Any]) -> Mapping[str, object]:
    parameters = item.parameters
    if parameters.score_threshold != item.floor:
        # The class filters by its threshold, and must leave what the task may select.
        parameters = msgspec.structs.replace(parameters, score_threshold=item.floor)
    return {"image": item.image.pixels, "parameters": parameters}


def _prompt_arguments(item: PromptedImage) -> Mapping[str, object]:
    reject_conversation(item.parameters.messages, item.path)
    return {"image": item.image.pixels, PROMPTS: list(item.prompts), "parameters": item.parameters}


def _text_arguments(item: ContinuedText) -> Mapping[str, object]:
    reject_conversation(item.parameters.messages, "messages")
    return {"text": item.text, "parameters": item.parameters}


TASK_ADAPTERS: Mapping[TaskType, TaskAdapter] = {
    TaskType.IMAGE_CLASSIFICATION: TaskAdapter(ImageClassification(), "image", _image_arguments, read_classification),
    TaskType.OBJECT_DETECTION: TaskAdapter(ObjectDetection(), "image", _image_arguments, read_detections),
    TaskType.ORIENTED_OBJECT_DETECTION: TaskAdapter(
        OrientedObjectDetection(), "image", _image_arguments, read_oriented_detections
    ),
    TaskType.IMAGE_SEGMENTATION: TaskAdapter(ImageSegmentation(), "image", _image_arguments, read_segments),
    TaskType.IMAGE_TEXT_TO_TEXT: TaskAdapter(
        ImageTextToText(), "image", _prompt_arguments, read_answers, (PROMPTS, "parameters"), PROMPT
    ),
    TaskType.TEXT_GENERATION: TaskAdapter(
        TextGeneration(), "text", _text_arguments, read_generation, streaming_argument="text"
    ),
}
"""For each task except TENSOR, whose adapter depends on the class."""


def task_adapter(task_type: object, target: object) -> TaskAdapter:
    """Return the adapter for an object or its class. A class of the task TENSOR declares its tensors.

    Requests with a JSON Schema are rejected, unless a class declares ``json_schema = True`` and follows it itself.
    Raise ModelError if the task type is unknown, or the declaration is missing or invalid.
    """
    added = {support.task_type: support.adapter for support in registry().task_types if support.adapter is not None}
    known = ", ".join((*TASK_ADAPTERS, *added, TaskType.TENSOR))
    if task_type is None:
        raise ModelError(f'a Python model must declare its "task_type", one of {known}')
    if task_type != TaskType.TENSOR:
        name = cast("TaskType", str(task_type))
        adapter = added[name].load() if name in added else TASK_ADAPTERS.get(name)
        if adapter is None:
            advice = removed_advice(f"task type {name}")
            raise ModelError(f"the {advice}" if advice else f"task_type: Expected one of {known}, got {name!r}")
        if not issubclass(adapter.task.parameters_type, SamplingParameters) or getattr(target, JSON_SCHEMA, False):
            return adapter
        return msgspec.structs.replace(adapter, arguments=partial(_without_schema, adapter.arguments))
    inputs, outputs = (_specs(target, name) for name in ("inputs", "outputs"))

    def arguments(item: TensorsInput) -> Mapping[str, object]:
        return {_TENSORS: dict(item.tensors)}

    def parse(value: object, path: str, *_: object) -> Tensors:
        return read_tensors(value, path, outputs)

    return TaskAdapter(TensorInference(inputs, outputs, binary=True), _TENSORS, arguments, parse, ())


def _without_schema(arguments: Callable[[Any], Mapping[str, object]], item: Any) -> Mapping[str, object]:
    reject_schema(item.parameters)
    return arguments(item)


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


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """How ``predict`` is called.

    Attributes:
        names: names of its arguments, in order.
        batch: whether one call takes all samples of a request; otherwise each call takes one sample.
        call_per_prompt: whether each call takes one prompt.
        streams: whether it yields its answer in chunks.
    """

    names: Sequence[str]
    batch: bool
    call_per_prompt: bool
    streams: bool

    def __str__(self) -> str:
        """Return the signature for logs and messages."""
        return f"predict({', '.join(self.names)}){', streamed' if self.streams else ''}"


def find_method(target: object, name: str) -> Any:
    """Return a method of an object or a class, bound so that its signature lacks the object; None without."""
    function: Any = inspect.getattr_static(target, name, None)
    binds = callable(function) and hasattr(function, "__get__") and not isinstance(function, staticmethod)
    if isinstance(target, type) and (binds or isinstance(function, partialmethod)):
        return function.__get__(target)
    return getattr(target, name, None)


def call_form(predict: Any, adapter: TaskAdapter) -> CallForm:
    """Derive the call form from the signature of ``predict``, a bound method.

    Raise ModelError if the signature has unknown arguments, or none for the data.
    """
    data_choices = [name for name in (adapter.sample_argument, adapter.batch_argument) if name]
    prompt = [PROMPT] if PROMPTS in adapter.optional_arguments else []
    names = _argument_names("predict()", predict, [*data_choices, *prompt, *adapter.optional_arguments])
    if len([name for name in names if name in data_choices]) != 1:
        expected = " or ".join(data_choices)
        raise ModelError(f"predict() must take {expected} after self, by this name, got predict({', '.join(names)})")
    form = CallForm(
        names=names,
        batch=adapter.batch_argument in names,
        call_per_prompt=PROMPT in names,
        streams=inspect.isgeneratorfunction(predict) or inspect.isasyncgenfunction(predict),
    )
    if form.call_per_prompt and (form.batch or PROMPTS in names):
        raise ModelError(f"predict() can take prompt only together with image and without prompts, got {form}")
    if form.streams and adapter.streaming_argument not in names:
        condition = "its answers are texts"
        if adapter.streaming_argument:
            needed = dict.fromkeys((adapter.sample_argument, adapter.streaming_argument))
            condition = f"it takes {' and '.join(needed)}"
        raise ModelError(f"predict() may yield texts only if {condition}, got {form}")
    return form


def explain_arguments(explain: Any, adapter: TaskAdapter) -> Sequence[str]:
    """Return the names of the arguments of ``explain``, a bound method.

    Raise ModelError if the signature has unknown arguments, or none for the inputs.
    """
    names = _argument_names("explain()", explain, (INPUTS, PREDICTIONS, *adapter.optional_arguments))
    if INPUTS not in names:
        raise ModelError(f"explain() must take {INPUTS} after self, by this name, got explain({', '.join(names)})")
    if inspect.isgeneratorfunction(explain) or inspect.isasyncgenfunction(explain):
        raise ModelError("explain() must return a list, but it yields")
    return names


def _argument_names(function_name: str, function: Any, choices: Sequence[str]) -> list[str]:
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in choices and parameter.kind is not parameter.POSITIONAL_ONLY:
            names.append(name)
        elif parameter.default is parameter.empty:
            raise ModelError(f"{function_name} takes {name!r}, but may take only {', '.join(choices)}, by these names")
    return names
