"""A model that runs in a process of its own, as the engine knows it."""

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

_SIZES_REMEMBERED = 1024


class IsolatedModel:
    """A model of any task. Its process is not wanted any more when this is dropped.

    Args:
        supervisor: keeps the process running.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    @property
    def trouble(self) -> str:
        """Why it answers nobody now; empty while it does."""
        return self._supervisor.trouble

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        return _called(self._supervisor, "predict", list(inputs))


class StreamingIsolatedModel(IsolatedModel):
    """A model that can tell an answer while it makes it, a piece when one is asked for."""

    def stream(self, inputs: Sequence[Any], /) -> Generator[TextPiece]:
        """The pieces of every answer, in the order of the inputs."""
        supervisor = self._supervisor
        lines = supervisor.lines()
        try:
            line = lines.take()
        except OSError:
            raise supervisor.ended(lines) from None
        try:
            piece = _outcome(supervisor, lines, line, "stream", list(inputs))
            while not isinstance(piece, Ended):
                yield piece
                piece = _outcome(supervisor, lines, line, "next")
        except GeneratorExit:
            # Nobody is there to be told that it went wrong.
            with suppress(InferenceError):
                _outcome(supervisor, lines, line, "close")
            raise
        finally:
            if lines.give_back(line):
                supervisor.wake()


def detail_of(supervisor: Supervisor) -> Callable[[int, int], float]:
    """`Limits.detail` of the model, asked for once for each size of pictures."""

    def detail(width: int, height: int) -> float:
        return _called(supervisor, "detail", (width, height))

    return lru_cache(_SIZES_REMEMBERED)(detail)


def _called(supervisor: Supervisor, kind: Literal["predict", "detail"], given: Any) -> Any:
    lines = supervisor.lines()
    line = None
    try:
        with lines.for_call() as line:
            return _outcome(supervisor, lines, line, kind, given)
    except OSError:
        # No line could be opened.
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
    """What the model answers.

    Raises:
        InferenceError: what the model raised, or why there is no answer.
    """
    try:
        reply: Reply = line.ask(kind, given)
    except TimeoutError:
        lines.process.kill("it hung: it took or gave no part of a message in time")
        raise supervisor.ended(lines) from None
    except NoMessageError:
        lines.process.kill("its answer cannot be read")
        raise supervisor.ended(lines) from None
    except (EOFError, OSError):
        raise supervisor.ended(lines) from None
    if isinstance(reply.outcome, Failure):
        raise reply.outcome.error()
    return reply.outcome
