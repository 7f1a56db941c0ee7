"""Call the instances of a class as a model of its task, and validate their answers."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from app.runtimes.python.answers.reading import Labels, described, items, refused, text
from app.runtimes.python.calling import CallForm
from app.runtimes.python.instances import Instances, Lease
from app.runtimes.python.kinds import PROMPT, PROMPTS, Kind
from tasks.exchange.response import Prediction
from tasks.task import TextPiece

__all__ = ("PythonModel", "StreamingPythonModel")

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)

_RESULT = "predict()"


class PythonModel(Generic[InputT, PredictionT]):
    """A model of any task.

    Args:
        instances: the instances of the class.
        form: how ``predict`` is called.
        kind: the arguments of ``predict``, and the reader of its answers.
        labels: the model's class names.
    """

    def __init__(self, instances: Instances, form: CallForm, kind: Kind[InputT, PredictionT], labels: Labels) -> None:
        self._instances = instances
        self._form = form
        self._kind = kind
        self._labels = labels

    @property
    def trouble(self) -> str:
        """Return why the model cannot answer: all instances hang. Return an empty string otherwise."""
        return self._instances.trouble

    def __call__(self, inputs: Sequence[InputT], /) -> Sequence[PredictionT]:
        with self._instances.lease() as lease:
            if self._form.batch:
                answers = self._batch(lease, inputs)
            else:
                answers = [(self._answer(lease, item), _RESULT) for item in inputs]
        return [
            self._kind.read(answer, path, item, self._labels)
            for (answer, path), item in zip(answers, inputs, strict=True)
        ]

    def _batch(self, lease: Lease, inputs: Sequence[InputT]) -> Sequence[tuple[object, str]]:
        samples = [self._kind.values(item) for item in inputs]
        batched = {
            name: [sample[self._kind.one if name == self._kind.many else name] for sample in samples]
            for name in self._form.names
        }
        found = lease.run(lambda target: target.predict(**batched))
        answers = items(found)
        if answers is None or len(answers) != len(inputs):
            raise refused(_RESULT, f"a list of {len(inputs)} answers, one for each {self._kind.one}", described(found))
        return [(answer, f"{_RESULT}[{index}]") for index, answer in enumerate(answers)]

    def _answer(self, lease: Lease, item: InputT) -> object:
        answers = [self._call(lease, arguments) for arguments in self._arguments(item)]
        return answers if self._form.each_prompt else answers[0]

    def _arguments(self, item: InputT) -> Sequence[Mapping[str, object]]:
        """Return the arguments of each call for one sample: one call, or one for each prompt."""
        values: Mapping[str, Any] = self._kind.values(item)
        names = self._form.names
        if not self._form.each_prompt:
            return [{name: values[name] for name in names}]
        return [{name: prompt if name == PROMPT else values[name] for name in names} for prompt in values[PROMPTS]]

    def _call(self, lease: Lease, arguments: Mapping[str, object]) -> object:
        return lease.run(lambda target: target.predict(**arguments))


class StreamingPythonModel(PythonModel[InputT, PredictionT]):
    """A model whose ``predict`` yields the chunks of its answer to one prompt or text."""

    def stream(self, inputs: Sequence[InputT], /) -> Generator[TextPiece]:
        """Yield the chunks of every answer, in the order of the inputs and their prompts."""
        with self._instances.lease() as lease:
            for index, item in enumerate(inputs):
                for number, arguments in enumerate(self._arguments(item)):
                    for chunk in self._chunks(lease, arguments):
                        yield TextPiece(item=index, prompt=number, text=chunk)
                    yield TextPiece(item=index, prompt=number, text="", final=True)

    def _call(self, lease: Lease, arguments: Mapping[str, object]) -> object:
        return "".join(self._chunks(lease, arguments))

    def _chunks(self, lease: Lease, arguments: Mapping[str, object]) -> Generator[str]:
        chunks: Any = lease.run(lambda target: target.predict(**arguments))
        is_async = hasattr(chunks, "__anext__")
        try:
            while True:
                # None marks the end, because valid chunks are strings.
                chunk: object = lease.run(lambda _: anext(chunks, None) if is_async else next(chunks, None))
                if chunk is None:
                    return
                yield text(chunk, f"{_RESULT}, yielded")
        finally:
            if not lease.late:
                lease.run(lambda _: chunks.aclose() if is_async else chunks.close())
