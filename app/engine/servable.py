"""A task bound to a model of it, its generic types closed over."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Generic, Protocol, Self, TypeVar, cast, runtime_checkable

import msgspec

from app.engine.answered import Answered, Datum, Findings, Timings
from app.engine.batching import BatchingModel
from app.engine.description import ModelDescription
from app.engine.interest import check_interest
from app.engine.reasons import told
from app.engine.streaming import Place, TextStream
from app.settings.model import ModelError
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.parameters import read_parameters
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceOutput, Prediction
from tasks.exchange.tensor import TensorSpec
from tasks.explanation.sampling import Subject
from tasks.task import ExplainableTask, InputGroup, Model, StreamingTask, Task

__all__ = ("BoundServable", "Faltering", "Servable")

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)


@runtime_checkable
class Faltering(Protocol):
    """A model that may be unable to answer for a while, and knows it."""

    @property
    def trouble(self) -> str:
        """Why it answers nobody at the moment; empty while it does. Asked at every request."""
        ...


class Servable(Protocol):
    """A model ready to answer requests. Called from several threads at once."""

    @property
    def description(self) -> ModelDescription: ...

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What a protocol of tensors is to be told that the model takes."""
        ...

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """The tensors into which its predictions are stacked."""
        ...

    @property
    def parameters_type(self) -> type[msgspec.Struct]:
        """The parameters that its inputs may carry."""
        ...

    @property
    def trouble(self) -> str:
        """Why it answers nobody at the moment; empty while it does."""
        ...

    def batched(self, max_size: int, max_delay: float, /) -> Self:
        """The same, gathering the inputs of several requests into one call of the model.

        Args:
            max_size: inputs of one call.
            max_delay: seconds that the first request waits for others.
        """
        ...

    def answer(self, request: InferenceRequest, limits: Limits, /) -> Answered:
        """Answer every input of `request`.

        Raises:
            InferenceError: for a request that cannot be read, or a model that failed.
        """
        ...

    def answer_singly(self, request: InferenceRequest, limits: Limits, /) -> Generator[Answered]:
        """Answer `request` datum by datum: each is run alone, when its answer, of one output, is asked for.

        Raises:
            InferenceError: for a request that cannot be read, in place of the first answer, or a model that failed.
        """
        ...

    @property
    def streams(self) -> bool:
        """Whether its answers are texts, which `stream` tells while they are made."""
        ...

    def stream(self, request: InferenceRequest, limits: Limits, /) -> TextStream:
        """Begin to answer every input of `request` piece by piece.

        Raises:
            InferenceError: for a request that cannot be read, UNSUPPORTED when the model `streams` nothing.
        """
        ...

    def find(self, request: InferenceRequest, limits: Limits, label: str | None, most: int, /) -> Findings:
        """Answer every input of `request` so that the answer can be explained.

        Args:
            request: as for `answer`.
            limits: how much of it is worked on.
            label: explain only what is of this class.
            most: at most so many objects of each image.

        Raises:
            InferenceError: as `answer`; UNSUPPORTED for a model whose answers are about no part of a picture.
        """
        ...


class BoundServable(Generic[InputT, PredictionT]):
    """The servable of any task.

    Args:
        task: reads requests and narrows predictions.
        model: a model of that task.
        description: what is known of the model.
        defaults: request parameters that the model's settings give, under the request's own.
        detail: `Limits.detail` of the model, where its settings ask for it. Explanations see all there is to see.

    Raises:
        ModelError: when the defaults are not what the task takes.
    """

    def __init__(
        self,
        task: Task[InputT, PredictionT],
        model: Model[InputT, PredictionT],
        description: ModelDescription,
        defaults: Mapping[str, object],
        detail: Callable[[int, int], float] | None = None,
    ) -> None:
        try:
            read_parameters(task.parameters_type, defaults)
        except InferenceError as error:
            raise ModelError(f"model-settings.json: {error}") from None
        self.task = task
        self.model = self._gathered = model
        self._faltering = cast("Faltering", model) if isinstance(model, Faltering) else None
        self.defaults = defaults
        self.detail = detail
        self._streaming = cast("StreamingTask[InputT, PredictionT]", task) if isinstance(task, StreamingTask) else None
        self.streams = self._streaming is not None
        self.description = description
        self.inputs = task.inputs
        self.parameters_type = task.parameters_type
        self.outputs = task.outputs

    @property
    def trouble(self) -> str:
        return self._faltering.trouble if self._faltering is not None else ""

    def batched(self, max_size: int, max_delay: float) -> Self:
        """The same, gathering the inputs of several requests (`BatchingModel`); streams and explanations do not."""
        servable = copy(self)
        servable._gathered = BatchingModel(self.model, max_size, max_delay)
        return servable

    def answer(self, request: InferenceRequest, limits: Limits, /) -> Answered:
        return self._answer(request, self._bounds(limits), self._gathered)[0]

    def find(self, request: InferenceRequest, limits: Limits, label: str | None, most: int, /) -> Findings:
        if not isinstance(self.task, ExplainableTask):
            task_type = self.task.task_type
            message = f"Model {request.model_name!r} ({task_type}) gives no answers that a part of a picture explains"
            raise InferenceError(ErrorKind.UNSUPPORTED, message)
        task = cast("ExplainableTask[InputT, PredictionT]", self.task)
        answered, groups, predictions = self._answer(request, limits, self.model)
        raw = iter(predictions)
        subjects = [
            [
                Subject(
                    task=self.task,
                    model=partial(_predicted, self.model),
                    item=item,
                    targets=task.targets(next(raw), cast("PredictionT", refined), label, most),
                )
                for item, refined in zip(group.items, output.predictions, strict=True)
            ]
            for group, output in zip(groups, answered.outputs, strict=True)
        ]
        return Findings(answered=answered, subjects=subjects)

    def answer_singly(self, request: InferenceRequest, limits: Limits, /) -> Generator[Answered]:
        started = time.perf_counter_ns()
        groups = self.task.decode(request, self.defaults, self._bounds(limits))
        decoded = time.perf_counter_ns() - started
        for group in groups:
            for index, item in enumerate(group.items):
                began = time.perf_counter_ns()
                (prediction,) = _predicted(self.model, [item])
                modelled = time.perf_counter_ns()
                refined = self.task.refine(item, prediction)
                output = InferenceOutput(name=group.name, predictions=[refined], parameters=group.parameters)
                refine = time.perf_counter_ns() - modelled
                timings = Timings(decode=decoded, model=modelled - began, refine=refine)
                decoded = 0
                datum = Datum(input=group.index, index=index, item=item, prediction=refined)
                yield Answered(outputs=[output], batch_size=1, timings=timings, data=[datum])

    def stream(self, request: InferenceRequest, limits: Limits, /) -> TextStream:
        if self._streaming is None:
            message = f"Model {request.model_name!r} ({self.task.task_type}) does not answer in text; ask it to infer"
            raise InferenceError(ErrorKind.UNSUPPORTED, message)
        started = time.perf_counter_ns()
        groups = self.task.decode(request, self.defaults, limits)
        places = [
            Place(group.name, group.index, index, item, group.parameters)
            for group in groups
            for index, item in enumerate(group.items)
        ]
        items = [item for group in groups for item in group.items]
        decoded = time.perf_counter_ns()
        stream = self._streaming.stream(items, self.model)
        return TextStream(stream, places, decoded - started, self._streaming.gather)

    def _bounds(self, limits: Limits) -> Limits:
        return msgspec.structs.replace(limits, detail=self.detail) if self.detail else limits

    def _answer(
        self, request: InferenceRequest, limits: Limits, model: Model[InputT, PredictionT]
    ) -> tuple[Answered, Sequence[InputGroup[InputT]], Sequence[PredictionT]]:
        """The answer, and what it was made of."""
        started = time.perf_counter_ns()
        groups = self.task.decode(request, self.defaults, limits)
        items = [item for group in groups for item in group.items]
        decoded = time.perf_counter_ns()
        predictions = _predicted(model, items)
        modelled = time.perf_counter_ns()
        refined = iter([self.task.refine(item, each) for item, each in zip(items, predictions, strict=True)])
        outputs = [
            InferenceOutput(
                name=group.name, predictions=[next(refined) for _ in group.items], parameters=group.parameters
            )
            for group in groups
        ]
        data = [
            Datum(input=group.index, index=index, item=item, prediction=prediction)
            for group, output in zip(groups, outputs, strict=True)
            for index, (item, prediction) in enumerate(zip(group.items, output.predictions, strict=True))
        ]
        timings = Timings(decode=decoded - started, model=modelled - decoded, refine=time.perf_counter_ns() - modelled)
        return Answered(outputs=outputs, batch_size=len(items), timings=timings, data=data), groups, predictions


def _predicted(model: Model[InputT, PredictionT], items: Sequence[InputT]) -> Sequence[PredictionT]:
    check_interest()
    try:
        predictions = model(items)
    except InferenceError:
        raise
    except BaseException as error:
        # An order to stop that a model gives is obeyed by nobody: it would end a worker, or the server.
        raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: {told(error)}") from error
    if len(predictions) != len(items):
        message = f"The model answered {len(predictions)} of {len(items)} inputs"
        raise InferenceError(ErrorKind.MODEL_FAILED, message)
    return predictions
