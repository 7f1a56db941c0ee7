"""What observers are told of every inference, whatever its protocol and its end."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

import msgspec

from app.engine.answered import Answered, Timings
from metadata.entry import Metadata
from tasks.exchange.error import ErrorKind
from tasks.exchange.request import InferenceRequest

__all__ = ("Addition", "Caller", "InferenceEvent", "InferenceObserver", "Keeper")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request came from.

    Attributes:
        protocol: the wire protocol's name.
        request_id: the value of X-Request-ID, given or made.
        base_id: the value of Chariot-Inference-Base-ID, when the platform sent one.
        trace: the sender's trace context, W3C's `traceparent` and `tracestate`, as far as they came.
        returned: headers (gRPC: trailing metadata) of the response by their names, filled while it is made.
        timeout: seconds that the sender waits at most, None where it did not say; not a number for what it said that is
            none.
        gone: ends when the sender has left, None where leaving cancels whatever waits for the answer anyway.
        client: the name of the sender's key, or ``jwt:`` and the subject of its token; empty where nobody is asked.
        address: where the connection comes from, which may be a proxy that many share; empty where that is not known.
    """

    protocol: str
    request_id: str
    base_id: str | None = None
    trace: Mapping[str, str] = {}
    returned: dict[str, str] = {}
    timeout: float | None = None
    gone: Callable[[], Awaitable[None]] | None = None
    client: str = ""
    address: str = ""


class InferenceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One request that came to its end.

    Attributes:
        caller: where it came from.
        model_name: the model that was asked, empty when the request never said so.
        model_version: the version that answered, empty when none did.
        outcome: None for an answer, else why there was none.
        error: the sentence that the sender got, empty for an answer.
        batch_size: images, or texts, that the model saw.
        queue: nanoseconds that the request waited for a worker.
        total: nanoseconds from arrival to the end, waiting included. Observers are told with the time that keeping
            takes, which no keeper knows.
        arrived: when that time began, on the clock of `time.perf_counter_ns`.
        timings: where the time in between went.
        metadata: of each output, as far as it could be read.
        explanation: whether reasons were asked for beside the answer. Such a request takes hundreds of times as long.
        samples: masked copies of the images that the model was shown besides, for an explanation.
        id: names this event among all others.
        started: when the request arrived, in nanoseconds since 1970 (UTC).
        task_type: of the model that answered, empty when none did.
        request: what was asked, None when it could not be read.
        answered: what was answered, None when there is no answer; a part of it when it was broken off.
    """

    caller: Caller
    model_name: str
    model_version: str
    outcome: ErrorKind | None
    error: str
    batch_size: int
    queue: int
    total: int
    timings: Timings
    metadata: Sequence[Metadata]
    explanation: bool = False
    samples: int = 0
    id: str = ""
    arrived: int = 0
    started: int = 0
    task_type: str = ""
    request: InferenceRequest | None = None
    answered: Answered | None = None


class InferenceObserver(Protocol):
    """Is told of every inference once it has ended, and is kept. Neither blocks nor raises.

    Called in whatever thread that happened: the worker that did it, the keeper's own, or the event loop.
    """

    def observe(self, event: InferenceEvent, /) -> None: ...


class Keeper(Protocol):
    """Keeps inferences, so that no answer leaves before it is kept."""

    @property
    def refusing(self) -> str:
        """Why nothing can be kept at present, so that nothing would be answered; empty while it can."""
        ...

    def keep(self, event: InferenceEvent, /) -> "Future[None] | None":
        """Take over one inference or refusal; does not block.

        Returns:
            What is done when it is kept, and fails with an `InferenceError` when it cannot be: the sender of a request
            that was answered gets that instead. None when nobody need wait.
        """
        ...


class Addition(Protocol):
    """Says something more about an answer. Called in the worker, before the answer is written; does not raise."""

    def __call__(self, caller: Caller, answered: Answered, model_name: str, /) -> Sequence[Mapping[str, object]]:
        """Parameters for each output of `answered`, none or as many; headers go into `caller.returned`."""
        ...
