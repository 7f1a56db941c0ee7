"""Call the instances of a class as a model of its task, and validate their answers."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from operator import methodcaller
from typing import Any

import msgspec

from app.core.engine.cancellation import raise_if_cancelled
from app.core.runtimes.python.instances import InstanceLease, InstancePool
from app.core.runtimes.python.outputs.explanation import read_explanations
from app.core.runtimes.python.outputs.value_parsing import ClassNames, describe, invalid_answer, items, text
from app.core.runtimes.python.task_adapters import INPUTS, PREDICTIONS, PROMPT, PROMPTS, CallForm, TaskAdapter
from tasks.inference.response import Prediction
from tasks.task import TaskType, TextChunk

_RESULT, _EXPLANATION = "predict()", "explain()"


class PythonModel(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """A model of any task. Without ``explain``, the class has no `_explain_arguments`.

    `_converters` are functions of an answer, its path and the task. They return objects of other libraries in a form
    that the adapter reads, and other answers unchanged.
    """

    _instances: InstancePool
    _form: CallForm
    _adapter: TaskAdapter
    _labels: ClassNames
    _explain_arguments: Sequence[str] | None
    _converters: Sequence[Callable[[object, str, TaskType], object]] = ()

    @property
    def unavailable_reason(self) -> str:
        """Return why the model cannot answer: all instances hang. Return an empty string otherwise."""
        return self._instances.unavailable_reason

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Prediction]:
        with self._instances.lease() as lease:
            answers = self._answers(lease, inputs)
        return self._parse(answers, inputs)

    @property
    def explain(self) -> Callable[[Sequence[Any]], Sequence[tuple[Prediction, Any]]] | None:
        """Return the function of a `SelfExplainingModel`; None if the class has no ``explain``."""
        return None if self._explain_arguments is None else self._explain

    def _explain(self, inputs: Sequence[Any], /) -> Sequence[tuple[Prediction, Any]]:
        """Call ``predict``, then ``explain`` of the same object, so that it can use what ``predict`` kept."""
        with self._instances.lease() as lease:
            answers = self._answers(lease, inputs)
            predictions = self._parse(answers, inputs)
            explanations = self._explanations(lease, inputs, [answer for answer, _ in answers])
        return list(zip(predictions, explanations, strict=True))

    def _explanations(self, lease: InstanceLease, inputs: Sequence[Any], answers: list[object]) -> Sequence[object]:
        """Explain all samples in one call. Tensors are batches themselves: explain their rows, one call for each."""
        names, sample = self._explain_arguments or (), self._adapter.sample_argument

        def explained(arguments: Mapping[str, object], count: int, input_name: str) -> list[object]:
            result = lease.run(methodcaller("explain", **{name: arguments[name] for name in names}))
            return read_explanations(result, _EXPLANATION, count, input_name)

        if self._adapter.batch_argument is not None:
            lists = self._lists(inputs, [name for name in names if name != PREDICTIONS])
            return explained({**lists, PREDICTIONS: answers}, len(inputs), sample)
        explanations: list[object] = []
        for item, answer in zip(inputs, answers, strict=True):
            tensors: Any = self._adapter.arguments(item)[sample]
            row_count = max((len(tensor) for tensor in tensors.values() if tensor.ndim), default=1)
            explanations.append(explained({INPUTS: tensors, PREDICTIONS: answer}, row_count, "row"))
        return explanations

    def _answers(self, lease: InstanceLease, inputs: Sequence[Any]) -> Sequence[tuple[object, str]]:
        """Return what ``predict`` answers to each input, with its path in error messages."""
        if self._form.call_per_prompt:
            return [([self._call(lease, arguments) for arguments in self._arguments(item)], _RESULT) for item in inputs]
        if not self._form.batch:
            return [(self._call(lease, *self._arguments(item)), _RESULT) for item in inputs]
        result = lease.run(methodcaller("predict", **self._lists(inputs, self._form.names)))
        answers = items(result)
        if answers is None or len(answers) != len(inputs):
            expected = f"a list of {len(inputs)} answers, one for each {self._adapter.sample_argument}"
            raise invalid_answer(_RESULT, expected, describe(result))
        return [(answer, f"{_RESULT}[{index}]") for index, answer in enumerate(answers)]

    def _lists(self, inputs: Sequence[Any], names: Sequence[str]) -> Mapping[str, Sequence[object]]:
        """Return arguments with a list of the values of all samples."""
        samples = [self._adapter.arguments(item) for item in inputs]
        adapter = self._adapter
        sources = dict.fromkeys((adapter.batch_argument, INPUTS), adapter.sample_argument)
        return {name: [sample[sources.get(name, name)] for sample in samples] for name in names}

    def _parse(self, answers: Sequence[tuple[object, str]], inputs: Sequence[Any]) -> Sequence[Prediction]:
        predictions: list[Prediction] = []
        for (answer, path), item in zip(answers, inputs, strict=True):
            for convert in self._converters:
                answer = convert(answer, path, self._adapter.task.task_type)
            predictions.append(self._adapter.parse(answer, path, item, self._labels))
        return predictions

    def _arguments(self, item: Any) -> Sequence[Mapping[str, object]]:
        """Return the arguments of each call for one sample: one call, or one for each prompt."""
        arguments: Mapping[str, Any] = self._adapter.arguments(item)
        names = self._form.names
        if not self._form.call_per_prompt:
            return [{name: arguments[name] for name in names}]
        return [
            {name: prompt if name == PROMPT else arguments[name] for name in names} for prompt in arguments[PROMPTS]
        ]

    def _call(self, lease: InstanceLease, arguments: Mapping[str, object]) -> object:
        return lease.run(methodcaller("predict", **arguments))


class StreamingPythonModel(PythonModel, frozen=True, eq=False):
    """A model whose ``predict`` yields the chunks of its answer to one prompt or text."""

    def stream(self, inputs: Sequence[Any], /) -> Generator[TextChunk]:
        """Yield the chunks of every answer, in the order of the inputs and their prompts."""
        with self._instances.lease() as lease:
            for index, item in enumerate(inputs):
                for number, arguments in enumerate(self._arguments(item)):
                    with closing(self._chunks(lease, arguments)) as chunks:
                        for chunk in chunks:
                            yield TextChunk(item=index, prompt=number, text=chunk)
                    yield TextChunk(item=index, prompt=number, text="", final=True)

    def _call(self, lease: InstanceLease, arguments: Mapping[str, object]) -> object:
        return "".join(self._chunks(lease, arguments))

    def _chunks(self, lease: InstanceLease, arguments: Mapping[str, object]) -> Generator[str]:
        chunks: Any = lease.run(methodcaller("predict", **arguments))
        is_async = hasattr(chunks, "__anext__")
        try:
            while True:
                raise_if_cancelled()
                # The generator itself marks its end, because a model may yield None by mistake.
                chunk: object = lease.run(lambda _: anext(chunks, chunks) if is_async else next(chunks, chunks))
                if chunk is chunks:
                    return
                yield text(chunk, f"{_RESULT}, yielded")
        finally:
            if not lease.timed_out:
                lease.run(lambda _: chunks.aclose() if is_async else chunks.close())
