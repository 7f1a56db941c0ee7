"""A callable that forwards inputs to a model in its own process."""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

from app.runtimes.isolated.line import Line
from app.runtimes.isolated.lines import Lines
from app.runtimes.isolated.messages import Ended, Failure, NoMessageError, Reply
from app.runtimes.isolated.supervisor import Supervisor
from tasks.exchange.error import InferenceError
from tasks.task import TextPiece

__all__ = ("IsolatedModel", "StreamingIsolatedModel", "detail_of")

_MAX_CACHED_SIZES = 1024


class IsolatedModel:
    """A model of any task. Its process ends after this object is dropped.

    Args:
        supervisor: keeps the process running.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    @property
    def trouble(self) -> str:
        """Return why the model cannot answer now, or an empty string."""
        return self._supervisor.trouble

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        return _call(self._supervisor, "predict", list(inputs))


class StreamingIsolatedModel(IsolatedModel):
    """A model that streams its answers, one chunk at a time on demand."""

    def stream(self, inputs: Sequence[Any], /) -> Generator[TextPiece]:
        """Yield the chunks of every answer, in the order of the inputs."""
        supervisor = self._supervisor
        lines = supervisor.lines()
        try:
            line = lines.take()
        except OSError:
            raise supervisor.ended(lines) from None
        try:
            chunk = _outcome(supervisor, lines, line, "stream", list(inputs))
            while not isinstance(chunk, Ended):
                yield chunk
                chunk = _outcome(supervisor, lines, line, "next")
        except GeneratorExit:
            # The reader has left, so an error has no recipient.
            with suppress(InferenceError):
                _outcome(supervisor, lines, line, "close")
            raise
        finally:
            if lines.give_back(line):
                supervisor.wake()


def detail_of(supervisor: Supervisor) -> Callable[[int, int], float]:
    """Return the `Limits.detail` function of the model, cached by image size."""

    def detail(width: int, height: int) -> float:
        return _call(supervisor, "detail", (width, height))

    return lru_cache(_MAX_CACHED_SIZES)(detail)


def _call(supervisor: Supervisor, kind: Literal["predict", "detail"], given: Any) -> Any:
    lines = supervisor.lines()
    line = None
    try:
        with lines.for_call() as line:
            return _outcome(supervisor, lines, line, kind, given)
    except OSError:
        # No channel could be opened.
        raise supervisor.ended(lines) from None
    finally:
        if line is not None and line.open_question:
            supervisor.wake()


def _outcome(
    supervisor: Supervisor,
    lines: Lines,
    line: Line,
    kind: Literal["predict", "stream", "next", "close", "detail"],
    given: Any = None,
) -> Any:
    """Make one call and return the outcome of its reply.

    Raises:
        InferenceError: if the model fails, or its process ends or hangs.
    """
    try:
        reply: Reply = line.ask(kind, given)
    except TimeoutError:
        lines.process.kill("it hung: it did not read or write a message in time")
        raise supervisor.ended(lines) from None
    except NoMessageError:
        lines.process.kill("its answer cannot be read")
        raise supervisor.ended(lines) from None
    except (EOFError, OSError):
        raise supervisor.ended(lines) from None
    if isinstance(reply.outcome, Failure):
        raise reply.outcome.error()
    return reply.outcome
