"""The one place where a request meets a model, whatever wire it came over."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from app.engine.events import Caller, InferenceEvent, InferenceObserver
from app.engine.registry import Registration, Registry
from app.engine.servable import Answered, Timings
from metadata.entry import PARAMETER, read_metadata
from metadata.rule import annotate
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse

__all__ = ("Engine",)

WireT = TypeVar("WireT")

_logger = logging.getLogger(__name__)


class Engine:
    """Answers inference requests with the registry's models.

    Args:
        registry: the models.
        observers: told of every inference.
        limits: how much of one request is worked on.
        workers: threads that decode, run and encode; the models and OpenCV are held to one thread each, so that the
            number of cores is the right number of workers.
    """

    def __init__(
        self, registry: Registry, observers: Sequence[InferenceObserver], limits: Limits, workers: int
    ) -> None:
        self.registry = registry
        self.limits = limits
        self._observers = observers
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="inference")

    async def exchange(
        self,
        caller: Caller,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
    ) -> WireT:
        """Answer one wire request. All the work, from `decode` to `encode`, is done in one hop to a worker thread.

        Raises:
            InferenceError: whatever went wrong; nothing else leaves this method but cancellation.
        """
        arrived = time.perf_counter_ns()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, self._exchange, caller, decode, encode, arrived)

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Answer one neutral request in the calling thread, observing nothing: the in-process way in.

        Raises:
            InferenceError: whatever went wrong.
        """
        registration = self.registry.find(request.model_name, request.model_version)
        return _response(request, registration, self._answer(registration, request))

    def close(self) -> None:
        """Wait for the workers to finish what they have begun."""
        self._workers.shutdown()

    def _answer(self, registration: Registration, request: InferenceRequest) -> Answered:
        if registration.servable is None:
            raise InferenceError(ErrorKind.MODEL_NOT_READY, registration.reason)
        return registration.servable.answer(request, self.limits)

    def _exchange(
        self,
        caller: Caller,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
        arrived: int,
    ) -> WireT:
        story = _Story(caller, arrived)
        try:
            story.request = request = decode()
            story.registration = registration = self.registry.find(request.model_name, request.model_version)
            story.answered = answered = self._answer(registration, request)
            return encode(_response(request, registration, answered))
        except InferenceError as error:
            if error.kind in (ErrorKind.MODEL_FAILED, ErrorKind.INTERNAL):
                _logger.exception("inference failed", extra={"request_id": caller.request_id})
            story.error = error
            raise
        except Exception as error:
            _logger.exception("inference failed", extra={"request_id": caller.request_id})
            message = f"Something went wrong in the server; its log tells what, under request id {caller.request_id}"
            story.error = InferenceError(ErrorKind.INTERNAL, message)
            raise story.error from error
        finally:
            self._observe(story)

    def _observe(self, story: "_Story") -> None:
        event = story.event()
        for observer in self._observers:
            try:
                observer.observe(event)
            except Exception:
                _logger.exception("observer failed")


class _Story:
    """What happened to one request so far."""

    def __init__(self, caller: Caller, arrived: int) -> None:
        self.caller = caller
        self.arrived = arrived
        self.begun = time.perf_counter_ns()
        self.request: InferenceRequest | None = None
        self.registration: Registration | None = None
        self.answered: Answered | None = None
        self.error: InferenceError | None = None

    def event(self) -> InferenceEvent:
        request, answered = self.request, self.answered
        given = (
            [tensor.parameters[PARAMETER] for tensor in request.inputs if PARAMETER in tensor.parameters]
            if request
            else []
        )
        return InferenceEvent(
            caller=self.caller,
            model_name=request.model_name if request else self.caller.model_name,
            model_version=self.registration.source.version if self.registration else "",
            outcome=self.error.kind if self.error else None,
            error=str(self.error) if self.error else "",
            batch_size=answered.batch_size if answered else 0,
            queue=self.begun - self.arrived,
            total=time.perf_counter_ns() - self.arrived,
            timings=answered.timings if answered else Timings(),
            metadata=[read_metadata(value) for value in given],
        )


def _response(request: InferenceRequest, registration: Registration, answered: Answered) -> InferenceResponse:
    outputs = [msgspec.structs.replace(output, parameters=annotate(output.parameters)) for output in answered.outputs]
    return InferenceResponse(
        id=request.id,
        model_name=registration.source.name,
        model_version=registration.source.version,
        outputs=outputs,
    )
