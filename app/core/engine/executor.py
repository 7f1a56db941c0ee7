"""Process one request in a worker thread, from the decoder of its body to the encoder of its response."""

import logging
import math
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from app.core.engine.cancellation import exchange_token, raise_if_cancelled
from app.core.engine.events import BatchedObservers, OutputAnnotator, RecordSink
from app.core.engine.models.registry import Registration, Registry
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.engine.streams.text_stream import Chunk
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest, check_request
from tasks.inference.response import InferenceOutput, InferenceResponse, InferenceResult

WireT = TypeVar("WireT")

Answer = Callable[[Servable, InferenceRequest], tuple[InferenceResult, Any]]
"""Returns the result of the model, and what the encoder gets beside the response.

It ends early if the server drains or the client disconnects, which counts as answered.
"""

_logger = logging.getLogger(__name__)


class Executor:
    """Find the model of a request, run it, and report the outcome to the observers.

    Attributes:
        unfinished: the requests whose report is expected.
    """

    def __init__(self, registry: Registry, limits: Limits, observers: BatchedObservers) -> None:
        self._registry = registry
        self._limits = limits
        self._observers = observers
        self._annotators: list[OutputAnnotator] = []
        self._record_sink: RecordSink | None = None
        self.unfinished: set[RequestContext] = set()

    def attach(self, annotators: Sequence[OutputAnnotator], record_sink: RecordSink | None) -> None:
        """Add annotators, and a record sink if one is given."""
        self._annotators += annotators
        self._record_sink = record_sink or self._record_sink

    def handle(
        self,
        context: RequestContext,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT] | Callable[[InferenceResponse, Any], WireT],
        answer: Answer | None = None,
    ) -> WireT:
        """Answer a request with one response, by a plain prediction or by `answer`.

        Raise InferenceError for every failure.
        """
        # With the token, every call of the model would end early, instead of `answer` as a whole.
        previous = exchange_token(context if answer is None else None)
        try:
            request, registration = self._start(context, decode)
            servable = registration.servable or registration.ready_servable()
            added = ()
            if answer is None:
                result = servable.predict(request, self._limits)
            else:
                result, *added = answer(servable, request)
            context.result = result
            source, outputs = registration.source, result.outputs
            if self._annotators:
                outputs = self._annotated(context, result, source.name)
            response = InferenceResponse(
                id=request.id, model_name=source.name, model_version=source.version, outputs=outputs
            )
            encoded = cast("Callable[..., WireT]", encode)(response, *added)
            # An answer after cancellation counts as cancelled, for the client and for the metrics.
            error = context.cancellation
            if error is not None and (answer is None or error.kind is not ErrorKind.CANCELLED):
                raise error
            return encoded
        except Exception as error:  # noqa: BLE001  models raise any type
            raise self._failure(context, error)  # noqa: B904  its cause is set
        finally:
            exchange_token(previous)
            self.report(context)

    def stream(
        self,
        context: RequestContext,
        decode: Callable[[], InferenceRequest],
        encode_chunk: Callable[[Chunk], WireT | None],
        encode: Callable[[InferenceResponse], WireT] | None = None,
    ) -> Generator[WireT]:
        """Yield the results of `encode_chunk` that are not None, or with other tasks of `encode` for single samples.

        Without `encode`, only texts are answered. The reader reports the request. Raise InferenceError for every
        failure.
        """
        try:
            request, registration = self._start(context, decode)
            servable, source = registration.ready_servable(), registration.source
            if encode is not None and not servable.streams:
                for result in servable.predict_each(request, self._limits):
                    context.result = result if context.result is None else context.result.combined_with(result)
                    yield encode(
                        InferenceResponse(
                            id=request.id, model_name=source.name, model_version=source.version, outputs=result.outputs
                        )
                    )
                return
            stream = servable.stream(request, self._limits)
            try:
                for text_chunk in stream:
                    chunk = stream.chunk(text_chunk, request.id, source.name, source.version)
                    if (output := encode_chunk(chunk)) is not None:
                        yield output
            finally:
                context.result = stream.result()
        except Exception as error:  # noqa: BLE001  models raise any type
            raise self._failure(context, error)  # noqa: B904  its cause is set

    def report(self, context: RequestContext) -> None:
        """Record a finished request, then report it to the observers. Does nothing if it was reported before."""
        try:
            # One thread removes it: this is atomic.
            self.unfinished.remove(context)
        except KeyError:
            return
        context.finish()
        recorded = self._record_sink.record(context) if self._record_sink is not None else None
        if recorded is None:
            self._observers.add(context)
            return
        context.recorded = recorded
        # If recording fails, the client gets that error. Observers therefore wait for the outcome.
        recorded.add_done_callback(partial(self._on_recorded, context))

    def _on_recorded(self, context: RequestContext, recorded: Future[None]) -> None:
        error = None if recorded.cancelled() else recorded.exception()
        if context.outcome is None and isinstance(error, InferenceError):
            context.outcome, context.error = error.kind, str(error)
        context.total = time.perf_counter_ns() - context.arrived
        self._observers.add(context)

    def _annotated(
        self, context: RequestContext, result: InferenceResult, model_name: str
    ) -> Sequence[InferenceOutput]:
        """Return the outputs of `result` with the parameters that the annotators return."""
        outputs = result.outputs
        for annotator in self._annotators:
            if additions := annotator(context, result, model_name):
                outputs = [
                    msgspec.structs.replace(output, parameters={**output.parameters, **parameters})
                    for output, parameters in zip(outputs, additions, strict=True)
                ]
        return outputs

    def _start(
        self, context: RequestContext, decode: Callable[[], InferenceRequest]
    ) -> tuple[InferenceRequest, Registration]:
        """Start the work on a request: decode it, and find its model. Reject it before, if it has waited too long."""
        context.work_started = time.perf_counter_ns()
        waited = (context.work_started - context.arrived) / 1e9
        if context.max_queue_seconds is not None and waited > context.max_queue_seconds:
            message = f"The request waited for {waited:.3g} s, longer than the server allows; try again later"
            raise InferenceError(ErrorKind.OVERLOADED, message, retry_after=max(1, math.ceil(waited)))
        raise_if_cancelled()
        context.request = request = decode()
        if request.timeout is not None:
            context.set_timeout(request.timeout)
        check_request(request, self._limits)
        context.registration = registration = self._registry.find(request.model_name, request.model_version)
        return request, registration

    def _failure(self, context: RequestContext, error: Exception) -> InferenceError:
        """Set the error of `context`, as the client gets it, and return it. Log failures of the server and models."""
        if not isinstance(error, InferenceError) or error.kind in (ErrorKind.MODEL_FAILED, ErrorKind.INTERNAL):
            _logger.error("inference failed", exc_info=error, extra={"request_id": context.request_id})
        if not isinstance(error, InferenceError):
            message = f"Something went wrong in the server; see its log for request {context.request_id}"
            cause, error = error, InferenceError(ErrorKind.INTERNAL, message)
            error.__cause__ = cause
        elif context.request is not None:
            error = context.request.locate(error)
        context.failure = error
        return error
