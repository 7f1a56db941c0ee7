"""A class as a model of its task: what is asked goes to an object's thread, what comes back is read and checked."""

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
        instances: the objects that answer.
        form: how they are called.
        kind: what they are asked, and how their answers are read.
        labels: the model's class names.
    """

    def __init__(self, instances: Instances, form: CallForm, kind: Kind[InputT, PredictionT], labels: Labels) -> None:
        self._instances = instances
        self._form = form
        self._kind = kind
        self._labels = labels

    @property
    def trouble(self) -> str:
        """Why it answers nobody: no object of it returns from its call. Empty while one does."""
        return self._instances.trouble

    def __call__(self, inputs: Sequence[InputT], /) -> Sequence[PredictionT]:
        with self._instances.lease() as lease:
            if self._form.batch:
                answers = self._batch(lease, inputs)
            else:
                answers = [(self._answer(lease, each), _RESULT) for each in inputs]
        return [
            self._kind.read(answer, path, item, self._labels)
            for (answer, path), item in zip(answers, inputs, strict=True)
        ]

    def _batch(self, lease: Lease, inputs: Sequence[InputT]) -> Sequence[tuple[object, str]]:
        given = [self._kind.values(each) for each in inputs]
        gathered = {
            name: [each[self._kind.one if name == self._kind.many else name] for each in given]
            for name in self._form.names
        }
        found = lease.run(lambda target: target.predict(**gathered))
        answers = items(found)
        if answers is None or len(answers) != len(inputs):
            raise refused(_RESULT, f"a list of {len(inputs)} answers, one for each {self._kind.one}", described(found))
        return [(answer, f"{_RESULT}[{index}]") for index, answer in enumerate(answers)]

    def _answer(self, lease: Lease, item: InputT) -> object:
        answers = [self._call(lease, each) for each in self._wanted(item)]
        return answers if self._form.each_prompt else answers[0]

    def _wanted(self, item: InputT) -> Sequence[Mapping[str, object]]:
        """The arguments of every call for one datum: one call, or one for each prompt."""
        values: Mapping[str, Any] = self._kind.values(item)
        names = self._form.names
        if not self._form.each_prompt:
            return [{name: values[name] for name in names}]
        return [{name: prompt if name == PROMPT else values[name] for name in names} for prompt in values[PROMPTS]]

    def _call(self, lease: Lease, wanted: Mapping[str, object]) -> object:
        return lease.run(lambda target: target.predict(**wanted))


class StreamingPythonModel(PythonModel[InputT, PredictionT]):
    """A model whose ``predict`` yields the pieces of its answer to one prompt, or to one text."""

    def stream(self, inputs: Sequence[InputT], /) -> Generator[TextPiece]:
        """The pieces of every answer, in the order of the inputs and their prompts."""
        with self._instances.lease() as lease:
            for index, item in enumerate(inputs):
                for number, wanted in enumerate(self._wanted(item)):
                    for piece in self._pieces(lease, wanted):
                        yield TextPiece(item=index, prompt=number, text=piece)
                    yield TextPiece(item=index, prompt=number, text="", final=True)

    def _call(self, lease: Lease, wanted: Mapping[str, object]) -> object:
        return "".join(self._pieces(lease, wanted))

    def _pieces(self, lease: Lease, wanted: Mapping[str, object]) -> Generator[str]:
        pieces: Any = lease.run(lambda target: target.predict(**wanted))
        awaited = hasattr(pieces, "__anext__")
        try:
            while True:
                # None stands for the end: what is yielded is text.
                piece: object = lease.run(lambda _: anext(pieces, None) if awaited else next(pieces, None))
                if piece is None:
                    return
                yield text(piece, f"{_RESULT}, yielded")
        finally:
            if not lease.late:
                lease.run(lambda _: pieces.aclose() if awaited else pieces.close())
