"""Servables: a model together with its task, ready to answer requests."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar, cast, runtime_checkable

import msgspec

from app.engine.inference_result import ExplanationTargets, InferenceResult, SampleResult
from app.engine.models.explanation_source import Explainer, ExplanationSource
from app.engine.models.model_call import call_model
from app.engine.models.model_metadata import ModelMetadata
from app.engine.scheduling.batching import BatchingModel
from app.engine.streams.text_stream import InputPosition, TextStream
from app.settings.model import ModelError
from metadata.entry import output_parameters
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.parameters import read_parameters
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceOutput, Prediction
from tasks.inference.tensor import TensorSpec
from tasks.row_importance import RowTarget
from tasks.task import InputGroup, Model, StreamingTask, Task

__all__ = ("BoundServable", "HealthReporting", "MemoryReporting", "Servable")

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)


@runtime_checkable
class HealthReporting(Protocol):
    """A model that reports when it cannot answer."""

    @property
    def unavailable_reason(self) -> str:
        """Return why it cannot answer now, empty if it can. Read for every request."""
        ...


@runtime_checkable
class MemoryReporting(Protocol):
    """A model that reports the memory of its own process."""

    @property
    def resident_bytes(self) -> int | None:
        """Return its resident memory in bytes, None while it has no process."""
        ...


class Servable(Protocol):
    """A model ready to answer requests. Called from several threads at once.

    Attributes:
        loaded_bytes: what loading the model added to the memory of this process; None if unknown.
    """

    loaded_bytes: int | None

    @property
    def description(self) -> ModelMetadata: ...

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Return the input tensors that tensor protocols report for the model."""
        ...

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Return the tensors into which predictions are stacked."""
        ...

    @property
    def parameters_type(self) -> type[msgspec.Struct]:
        """Return the type of the parameters of its inputs."""
        ...

    @property
    def unavailable_reason(self) -> str:
        """Return why it cannot answer now, empty if it can."""
        ...

    @property
    def resident_bytes(self) -> int | None:
        """Return the bytes in memory of its process, or those that loading it added to this one; None if unknown."""
        ...

    def batched(self, max_size: int, max_delay: float, /) -> Self:
        """Return a copy with dynamic batching: several requests share one call of the model.

        Args:
            max_size: maximum number of inputs in one call.
            max_delay: seconds that the first request waits for others.
        """
        ...

    def predict(self, request: InferenceRequest, limits: Limits, /) -> InferenceResult:
        """Answer every input of `request`.

        Raises:
            InferenceError: for an invalid request, or a model that failed.
        """
        ...

    def predict_each(self, request: InferenceRequest, limits: Limits, /) -> Generator[InferenceResult]:
        """Answer `request` sample by sample. Each sample runs alone, when its result is requested.

        Raises:
            InferenceError: for an invalid request, instead of the first result, or a model that failed.
        """
        ...

    @property
    def streams(self) -> bool:
        """Return whether its answers are texts that `stream` can generate in chunks."""
        ...

    def stream(self, request: InferenceRequest, limits: Limits, /) -> TextStream:
        """Start to answer every input of `request` in chunks of text.

        Raises:
            InferenceError: for an invalid request; UNSUPPORTED if `streams` is False.
        """
        ...

    @property
    def explained_by(self) -> Explainer | None:
        """Return what explains its answers; None if they cannot be explained."""
        ...

    def check_explained(self, model_name: str, /) -> None:
        """Check that its answers can be explained.

        Raises:
            InferenceError: UNSUPPORTED, with the reason.
        """
        ...

    def explanation_targets(
        self, request: InferenceRequest, limits: Limits, label: str | None, max_objects: int, /
    ) -> ExplanationTargets:
        """Answer every input of `request`, and return the targets to explain.

        Args:
            request: as for `predict`.
            limits: limits on one request.
            label: explain only this class.
            max_objects: maximum number of explained objects in each image.

        Raises:
            InferenceError: as `predict`, and INVALID_REQUEST for an unknown label.
        """
        ...

    def row_target(self, request: InferenceRequest, limits: Limits, /) -> tuple[InferenceResult, RowTarget]:
        """Answer a request to a TENSOR model, and return the rows to explain.

        Raises:
            InferenceError: as `predict`.
        """
        ...

    def explain_itself(
        self, request: InferenceRequest, limits: Limits, /
    ) -> tuple[InferenceResult, Sequence[Sequence[Any]]]:
        """Answer every input of `request`, and return the model's own explanation of each sample of each output.

        Raises:
            InferenceError: as `predict`.
        """
        ...


class BoundServable(Generic[InputT, PredictionT]):
    """The servable of any task.

    Args:
        task: decodes requests and postprocesses predictions.
        model: a model of that task.
        description: metadata of the model.
        defaults: default request parameters from the model's settings.
        downscale: `Limits.downscale` of the model, if its settings enable it. Explanations use the full resolution.

    Attributes:
        loaded_bytes: what loading the model added to the memory of this process; None if unknown.

    Raises:
        ModelError: if the defaults are not valid parameters of the task.
    """

    def __init__(
        self,
        task: Task[InputT, PredictionT],
        model: Model[InputT, PredictionT],
        description: ModelMetadata,
        defaults: Mapping[str, object],
        downscale: Callable[[int, int], float] | None = None,
    ) -> None:
        try:
            read_parameters(task.parameters_type, defaults)
        except InferenceError as error:
            raise ModelError(f"model-settings.json: {error}") from None
        self.task = task
        self.model = self._batched = model
        self._health = cast("HealthReporting", model) if isinstance(model, HealthReporting) else None
        self.loaded_bytes: int | None = None
        self.defaults = defaults
        self.downscale = downscale
        self._streaming = cast("StreamingTask[InputT, PredictionT]", task) if isinstance(task, StreamingTask) else None
        self.streams = self._streaming is not None
        self._explanations = ExplanationSource(task, model, description.takes)
        self.explained_by: Explainer | None = self._explanations.explainer
        self.description = description
        self.inputs = task.inputs
        self.parameters_type = task.parameters_type
        self.outputs = task.outputs

    @property
    def unavailable_reason(self) -> str:
        return self._health.unavailable_reason if self._health is not None else ""

    @property
    def resident_bytes(self) -> int | None:
        model = self.model
        return model.resident_bytes if isinstance(model, MemoryReporting) else self.loaded_bytes

    def batched(self, max_size: int, max_delay: float) -> Self:
        """Return a copy with dynamic batching (`BatchingModel`), which streams and explanations do not use."""
        servable = copy(self)
        servable._batched = BatchingModel(self.model, max_size, max_delay)
        return servable

    def predict(self, request: InferenceRequest, limits: Limits, /) -> InferenceResult:
        if self.downscale is not None:
            limits = self._with_downscale(limits)
        return self._predict(request, limits, self._batched)[0]

    def explanation_targets(
        self, request: InferenceRequest, limits: Limits, label: str | None, max_objects: int, /
    ) -> ExplanationTargets:
        return self._explanations.targets(partial(self._predict, request, limits), label, max_objects)

    def row_target(self, request: InferenceRequest, limits: Limits, /) -> tuple[InferenceResult, RowTarget]:
        return self._explanations.row_target(partial(self._predict, request, limits), self.description.labels)

    def explain_itself(
        self, request: InferenceRequest, limits: Limits, /
    ) -> tuple[InferenceResult, Sequence[Sequence[Any]]]:
        return self._explanations.by_model(partial(self._predict, request, limits))

    def check_explained(self, model_name: str) -> None:
        if self.explained_by is None:
            message = f"Model {model_name!r} ({self.task.task_type}) does not support explanations"
            raise InferenceError(ErrorKind.UNSUPPORTED, f"{message}, because {self._explanations.missing}")

    def predict_each(self, request: InferenceRequest, limits: Limits, /) -> Generator[InferenceResult]:
        started = time.perf_counter_ns()
        groups = self.task.decode(request, self.defaults, self._with_downscale(limits))
        decode_ns = time.perf_counter_ns() - started
        for group in groups:
            for index, item in enumerate(group.items):
                model_started = time.perf_counter_ns()
                (prediction,) = call_model(self.model, [item])
                model_ended = time.perf_counter_ns()
                filtered = self.task.postprocess(item, prediction)
                output = InferenceOutput(
                    name=group.name,
                    index=group.index,
                    predictions=[filtered],
                    parameters=output_parameters(group.parameters),
                )
                postprocess_ns = time.perf_counter_ns() - model_ended
                sample = SampleResult(input=group.index, index=index, item=item, prediction=filtered)
                yield InferenceResult(
                    outputs=[output],
                    batch_size=1,
                    decode_ns=decode_ns,
                    model_ns=model_ended - model_started,
                    postprocess_ns=postprocess_ns,
                    samples=[sample],
                )
                decode_ns = 0

    def stream(self, request: InferenceRequest, limits: Limits, /) -> TextStream:
        if self._streaming is None:
            message = f"Model {request.model_name!r} ({self.task.task_type}) does not generate text; use infer instead"
            raise InferenceError(ErrorKind.UNSUPPORTED, message)
        started = time.perf_counter_ns()
        groups = self.task.decode(request, self.defaults, limits)
        positions = [
            InputPosition(group.name, group.index, index, item, output_parameters(group.parameters))
            for group in groups
            for index, item in enumerate(group.items)
        ]
        items = [item for group in groups for item in group.items]
        decoded_at = time.perf_counter_ns()
        stream = self._streaming.stream(items, self.model)
        return TextStream(stream, positions, decoded_at - started, self._streaming.gather)

    def _with_downscale(self, limits: Limits) -> Limits:
        return msgspec.structs.replace(limits, downscale=self.downscale) if self.downscale else limits

    def _predict(
        self, request: InferenceRequest, limits: Limits, model: Model[InputT, PredictionT]
    ) -> tuple[InferenceResult, Sequence[InputGroup[InputT]], Sequence[PredictionT]]:
        """Return the result, the decoded inputs and the raw predictions."""
        started = time.perf_counter_ns()
        groups = self.task.decode(request, self.defaults, limits)
        items = groups[0].items if len(groups) == 1 else [item for group in groups for item in group.items]
        decoded_at = time.perf_counter_ns()
        predictions = call_model(model, items)
        model_ended = time.perf_counter_ns()
        remaining = iter(predictions)
        outputs: list[InferenceOutput] = []
        samples: list[SampleResult] = []
        for group in groups:
            filtered: list[PredictionT] = []
            for index, item in enumerate(group.items):
                prediction = self.task.postprocess(item, next(remaining))
                filtered.append(prediction)
                samples.append(SampleResult(input=group.index, index=index, item=item, prediction=prediction))
            parameters = output_parameters(group.parameters) if group.parameters else group.parameters
            outputs.append(
                InferenceOutput(name=group.name, index=group.index, predictions=filtered, parameters=parameters)
            )
        result = InferenceResult(
            outputs=outputs,
            batch_size=len(items),
            decode_ns=decoded_at - started,
            model_ns=model_ended - decoded_at,
            postprocess_ns=time.perf_counter_ns() - model_ended,
            samples=samples,
        )
        return result, groups, predictions
