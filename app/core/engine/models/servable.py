"""Servables: a model together with its task and steps, ready to answer requests."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from app.core.engine.cancellation import raise_if_cancelled
from app.core.engine.error_text import error_text, is_ctrl_c
from app.core.engine.models.steps import Runner, ScoreStep, SplitStep
from app.core.engine.streams.text_stream import TextStream
from app.core.settings.model import ModelError, ModelSource
from metadata.model import ModelMetadata
from metadata.request import output_parameters
from tasks.inference.error import ErrorKind, InferenceError, invalid, model_failed
from tasks.inference.limits import Limits
from tasks.inference.parameters import InputParameters, added_to
from tasks.inference.request import InferenceRequest, read_parameters
from tasks.inference.response import InferenceOutput, InferenceResult, Prediction, SampleResult
from tasks.task import InputGroup, Model, StreamingModel, StreamingTask, Task
from tasks.text.stopping import ChunkCollector

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)
ResultT = TypeVar("ResultT")


@runtime_checkable
class HealthReporting(Protocol):
    """A model that reports when it cannot answer."""

    @property
    def unavailable_reason(self) -> str:
        """Return why it cannot answer now, empty if it can. Read for every request."""
        ...


class Servable:
    """A model of any task, ready to answer requests. Called from several threads at once.

    Raise ModelError if the defaults are not valid parameters of the task.

    Args:
        task: decodes requests and postprocesses predictions.
        model: a model of that task.
        description: metadata of the model.
        defaults: default request parameters from the model's settings.
        downscale: `Limits.downscale` of the model, if its settings enable it. Explanations use the full resolution.

    Attributes:
        health: the model, if it reports when it cannot answer.
        runner: runs the model for `predict`. Batching replaces it; streams and explanations do not use it.
        split_step: splits large items, and merges the predictions for their parts; set by a loader of models.
        score_step: changes the scores of predictions; set by a loader of models.
        tensor_view: the same model for clients that send and read the raw tensors of its graph; None without one. The
            loader of the graph sets it. It has no steps and no batching.
        loaded_bytes: what loading the model added to the memory of this process; None if unknown.
        inputs: the input tensors that tensor protocols report for the model.
        outputs: the tensors into which predictions are stacked.
        parameter_types: the types of the parameters of its inputs: one of the task, and more of plugins.
        streams: whether its answers are texts that `stream` can generate in chunks.
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
        self.task: Task[Any, Any] = task
        self.model: Model[Any, Any] = model
        self.health = model if isinstance(model, HealthReporting) else None
        self.loaded_bytes: int | None = None
        self.defaults = defaults
        self.downscale = downscale
        self._streaming: StreamingTask[Any, Any] | None = task if isinstance(task, StreamingTask) else None
        self.streams = self._streaming is not None
        self.runner: Runner = model
        if self._streaming is not None and isinstance(model, StreamingModel):
            self.runner = partial(_run_until_stopped, self._streaming, model)
        self.split_step: SplitStep | None = None
        self.score_step: ScoreStep | None = None
        self.tensor_view: Servable | None = None
        self.description = description
        self.inputs = task.inputs
        self.parameter_types: Sequence[type[msgspec.Struct]] = (task.parameters_type, *added_to(task.parameters_type))
        self.outputs = task.outputs

    @property
    def resident_bytes(self) -> int | None:
        """Return the bytes in memory of its process, or those that loading it added to this one; None if unknown."""
        return getattr(self.model, "resident_bytes", self.loaded_bytes)

    @property
    def parameter_names(self) -> Sequence[str]:
        """Return the names of the parameters of its inputs."""
        fields = [name for kind in self.parameter_types for name in kind.__struct_fields__]
        return [name for name in fields if name != "plugin_parameters"]

    def predict(self, request: InferenceRequest, limits: Limits) -> InferenceResult:
        """Answer every input of `request`. Raise InferenceError for an invalid request, or a model that failed."""
        groups, decode_ns = self._decode(request, limits)
        return self.run(groups, self.runner, decode_ns)[0]

    def predict_each(self, request: InferenceRequest, limits: Limits) -> Generator[InferenceResult]:
        """Answer `request` sample by sample. Each sample runs alone, when its result is requested.

        Raise InferenceError for an invalid request, instead of the first result, or a model that failed.
        """
        groups, decode_ns = self._decode(request, limits)
        for group in groups:
            for index, item in enumerate(group.items):
                yield self.run([msgspec.structs.replace(group, items=[item])], self.model, decode_ns, index)[0]
                decode_ns = 0

    def stream(self, request: InferenceRequest, limits: Limits) -> TextStream:
        """Start to answer every input of `request` in chunks of text.

        Raise InferenceError for an invalid request; UNSUPPORTED if `streams` is False.
        """
        streaming = self._streaming
        if streaming is None:
            message = f"Model {request.model_name!r} ({self.task.task_type}) does not generate text; use infer instead"
            raise InferenceError(ErrorKind.UNSUPPORTED, message)
        groups, decode_ns = self._decode(request, limits)
        stream = streaming.stream([item for group in groups for item in group.items], self.model)
        return TextStream(stream, groups, decode_ns, streaming.gather)

    def check_parameters(self, names: Iterable[str]) -> None:
        """Reject parameters that its task does not have. Requests of clients may have others, which are ignored.

        Raise INVALID_REQUEST, with the name as its path.
        """
        known = self.parameter_names
        for name in names:
            if name not in known:
                expected = f"one of {', '.join(known)}" if known else "no parameters"
                raise invalid(f"Expected {expected}; a model of {self.task.task_type} has no parameter {name!r}", name)

    def _decode(self, request: InferenceRequest, limits: Limits) -> tuple[Sequence[InputGroup[Any]], int]:
        """Decode a request; return its inputs, and the nanoseconds that decoding took."""
        if self.downscale is not None and not self._may_split(request):
            limits = msgspec.structs.replace(limits, downscale=self.downscale)
        started = time.perf_counter_ns()
        return self.task.decode(request, self.defaults, limits), time.perf_counter_ns() - started

    def _may_split(self, request: InferenceRequest) -> bool:
        """Return whether images must keep their full size, because they may be split."""
        step = self.split_step
        return step is not None and (
            step.default
            or step.parameter in self.defaults
            or any(step.parameter in request.parameters_of(index) for index in range(len(request.inputs)))
        )

    def split(self, groups: Sequence[InputGroup[Any]]) -> Sequence[Sequence[Sequence[Any]]]:
        """Return the parts of each item of each input, as `SplitStep.split`; nothing if no input asks for parts."""
        step = self.split_step
        if step is None:
            return ()
        asked = any(
            isinstance(parameters := getattr(item, "parameters", None), InputParameters)
            and parameters.plugin_parameters
            for group in groups
            for item in group.items
        )
        return step.split(groups) if step.default or asked else ()

    def call(self, runner: Runner, items: Sequence[Any], parts: Sequence[Sequence[Any]] = ()) -> Sequence[Any]:
        """Return a prediction with its final scores for each of `items`, before the task selects.

        `parts` has the parts of each item, if items are split. Raise InferenceError as `call_model`.
        """
        split_step, score_step = self.split_step, self.score_step
        if score_step is not None:
            items = [score_step.candidates(item) for item in items]
        if split_step is None or not any(parts):
            predictions = call_model(runner, items)
        else:
            run = partial(call_model, runner)
            whole = [item for item, own in zip(items, parts, strict=True) if not own]
            answered = iter(run(whole) if whole else ())
            predictions = [
                split_step.merge(run, item, own) if own else next(answered)
                for item, own in zip(items, parts, strict=True)
            ]
        return predictions if score_step is None else [score_step.scores(prediction) for prediction in predictions]

    def run(
        self, groups: Sequence[InputGroup[Any]], runner: Runner, decode_ns: int, first_index: int = 0
    ) -> tuple[InferenceResult, Sequence[Any]]:
        """Run the model and its steps on decoded inputs. Return the result, and the predictions of `call`.

        Decoding took `decode_ns` nanoseconds. `first_index` is the index of the first sample of each group in its
        input. Raise InferenceError as `call_model` and `SplitStep.split`.
        """
        items = groups[0].items if len(groups) == 1 else [item for group in groups for item in group.items]
        started = time.perf_counter_ns()
        parts = self.split(groups)
        predictions = self.call(runner, items, [own for of_group in parts for own in of_group])
        model_ended = time.perf_counter_ns()
        remaining = iter(predictions)
        outputs: list[InferenceOutput] = []
        samples: list[SampleResult] = []
        for position, group in enumerate(groups):
            filtered: list[Prediction] = []
            for index, item in enumerate(group.items, first_index):
                prediction = self.task.postprocess(item, next(remaining))
                filtered.append(prediction)
                samples.append(SampleResult(input=group.index, index=index, item=item, prediction=prediction))
            parameters = output_parameters(group.parameters) if group.parameters else group.parameters
            if self.split_step is not None and parts and (count := sum(map(len, parts[position]))):
                parameters = {**parameters, self.split_step.output: count}
            outputs.append(
                InferenceOutput(name=group.name, index=group.index, predictions=filtered, parameters=parameters)
            )
        result = InferenceResult(
            outputs=outputs,
            batch_size=len(items),
            decode_ns=decode_ns,
            model_ns=model_ended - started,
            postprocess_ns=time.perf_counter_ns() - model_ended,
            samples=samples,
        )
        return result, predictions


def _run_until_stopped(task: StreamingTask[Any, Any], model: Model[Any, Any], items: Sequence[Any], /) -> Sequence[Any]:
    """Run a model that streams, and generate no more of complete answers than their stop sequences need."""
    if not any(item.parameters.stop for item in items):
        return model(items)
    collector = ChunkCollector()
    with closing(task.generate(items, model)) as chunks:
        for chunk in chunks:
            raise_if_cancelled()
            collector.add(chunk)
    answers = collector.answers
    return [task.gather(item, answers[index]) for index, item in enumerate(items)]


def load_model(source: ModelSource, load: Callable[[ModelSource], ResultT]) -> ResultT:
    """Return `load` of `source`.

    Raise ModelError for every exception: a failure in a framework or in a model's own code must affect this model only.
    """
    try:
        return load(source)
    except ModelError:
        raise
    except BaseException as error:  # `SystemExit` and `KeyboardInterrupt` from model code must not stop the server
        if is_ctrl_c(error):
            raise
        raise ModelError(f"{source.folder} failed to load: {type(error).__name__}: {error}") from error


def explains_itself(model: object) -> bool:
    """Return whether `model` is a `SelfExplainingModel`."""
    return callable(getattr(model, "explain", None))


def call_model(runner: Callable[[Sequence[InputT]], Sequence[ResultT]], items: Sequence[InputT]) -> Sequence[ResultT]:
    """Return the result of `runner` for each of `items`.

    Raise MODEL_FAILED if the model fails, or answers another number of inputs; CANCELLED or DEADLINE_EXCEEDED if the
    request has ended.
    """
    raise_if_cancelled()
    try:
        results = runner(items)
    except InferenceError:
        raise
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        # `SystemExit` and `KeyboardInterrupt` from model code must not stop the worker.
        raise model_failed(f"The model failed: {error_text(error)}") from error
    if len(results) != len(items):
        raise model_failed(f"The model answered {len(results)} of {len(items)} inputs")
    return results
