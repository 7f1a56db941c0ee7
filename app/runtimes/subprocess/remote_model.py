"""A callable that forwards inputs to a model in its own process."""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Literal

from app.runtimes.remote import Failure
from app.runtimes.subprocess.channel import Channel
from app.runtimes.subprocess.channel_pool import ChannelPool
from app.runtimes.subprocess.messages import CallKind, InvalidMessageError, Reply, StreamEnd
from app.runtimes.subprocess.supervisor import Supervisor
from tasks.inference.error import InferenceError
from tasks.task import TextChunk

_MAX_CACHED_SIZES = 1024


class SubprocessModel:
    """A model of any task. Its process ends after this object is dropped.

    Args:
        supervisor: keeps the process running.
        methods: the `explanation_methods` of the model.

    Attributes:
        explain: the method of a `SelfExplainingModel`; None if the model has none.
        log_likelihoods: the method of a `LikelihoodModel`; None if the model has none.
    """

    def __init__(self, supervisor: Supervisor, methods: Collection[str] = ()) -> None:
        self._supervisor = supervisor
        self.explain = partial(_call_method, supervisor, "explain") if "explain" in methods else None
        self.log_likelihoods = (
            partial(_call_method, supervisor, "log_likelihoods") if "log_likelihoods" in methods else None
        )

    @property
    def unavailable_reason(self) -> str:
        """Return why the model cannot answer now, or an empty string."""
        return self._supervisor.unavailable_reason

    @property
    def resident_bytes(self) -> int | None:
        """Return the resident memory of the process in bytes, None while none runs."""
        return self._supervisor.resident_bytes

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        return _call(self._supervisor, "predict", list(inputs))


class StreamingSubprocessModel(SubprocessModel):
    """A model that streams its answers, one chunk at a time on demand."""

    def stream(self, inputs: Sequence[Any], /) -> Generator[TextChunk]:
        """Yield the chunks of every answer, in the order of the inputs."""
        supervisor = self._supervisor
        channels = supervisor.channels()
        try:
            channel = channels.acquire()
        except OSError:
            raise supervisor.ended_error(channels) from None
        try:
            chunk = _outcome(supervisor, channels, channel, "stream", list(inputs))
            while not isinstance(chunk, StreamEnd):
                yield chunk
                chunk = _outcome(supervisor, channels, channel, "next")
        except GeneratorExit:
            # The reader has left, so an error has no recipient.
            with suppress(InferenceError):
                _outcome(supervisor, channels, channel, "close")
            raise
        finally:
            if channels.release(channel):
                supervisor.wake()


def downscale_of(supervisor: Supervisor) -> Callable[[int, int], float]:
    """Return the `Limits.downscale` function of the model, cached by image size."""

    def downscale(width: int, height: int) -> float:
        return _call(supervisor, "downscale", (width, height))

    return lru_cache(_MAX_CACHED_SIZES)(downscale)


def _call_method(
    supervisor: Supervisor, kind: Literal["explain", "log_likelihoods"], *arguments: Sequence[Any]
) -> Sequence[Any]:
    return _call(supervisor, kind, arguments)


def _call(supervisor: Supervisor, kind: CallKind, inputs: Any) -> Any:
    channels = supervisor.channels()
    channel = None
    try:
        with channels.for_call() as channel:
            return _outcome(supervisor, channels, channel, kind, inputs)
    except OSError:
        # No channel could be opened.
        raise supervisor.ended_error(channels) from None
    finally:
        if channel is not None and channel.awaiting_reply:
            supervisor.wake()


def _outcome(
    supervisor: Supervisor,
    channels: ChannelPool,
    channel: Channel,
    kind: CallKind,
    inputs: Any = None,
) -> Any:
    """Make one call and return the outcome of its reply.

    Raises:
        InferenceError: if the model fails, or its process ends or hangs.
    """
    try:
        reply: Reply = channel.call(kind, inputs)
    except TimeoutError:
        channels.process.kill("it hung: it did not read or write a message in time")
        raise supervisor.ended_error(channels) from None
    except InvalidMessageError:
        channels.process.kill("its answer cannot be read")
        raise supervisor.ended_error(channels) from None
    except (EOFError, OSError):
        raise supervisor.ended_error(channels) from None
    if isinstance(reply.outcome, Failure):
        raise reply.outcome.to_error()
    return reply.outcome
