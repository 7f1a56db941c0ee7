"""Process one request in a worker thread, from the decoder of its body to the encoder of its response."""

import logging
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from typing import TypeVar

import msgspec

from app.engine.cancellation import cancellation_scope, raise_if_cancelled
from app.engine.events import InferenceEvent, InferenceObserver, OutputAnnotator, RecordSink, RequestInfo
from app.engine.explain import explain_request
from app.engine.inference_result import InferenceResult
from app.engine.registry import Registration, Registry
from app.engine.request_context import RequestContext
from app.engine.stream_sources import sample_results, text_chunks
from app.engine.text_stream import Chunk
from metadata.rule import annotate
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits, check_request
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.saliency.explanation import Explanation

__all__ = ("Executor", "Explanations")

WireT = TypeVar("WireT")

Explanations = Sequence[Sequence[Sequence[Explanation]]]
"""For each output of a response, for each of its images, one explanation for each explained prediction."""

_logger = logging.getLogger(__name__)


class Executor:
    """Find the model of a request, run it, and report the outcome to the observers.

    Args:
        registry: the models.
        limits: limits on one request.
        observers: receive the event of every request.
        prediction_observers: receive the event of every request except explanations, which take hundreds of times as
            long.
        annotators: add parameters to every response that is not streamed.
        record_sink: records every request.
    """

    def __init__(
        self,
        registry: Registry,
        limits: Limits,
        observers: Sequence[InferenceObserver],
        prediction_observers: Sequence[InferenceObserver],
        annotators: Sequence[OutputAnnotator] = (),
        record_sink: RecordSink | None = None,
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._observers = observers
        self._prediction_observers = prediction_observers
        self._annotators = annotators
        self._record_sink = record_sink
        self._unfinished: set[RequestContext] = set()

    def new_context(
        self, info: RequestInfo, model_name: str, deadline: float | None = None, *, explanation: bool = False
    ) -> RequestContext:
        """Return the context of a new request; `report` reports it once."""
        context = RequestContext(info, model_name, deadline, explanation=explanation)
        self._unfinished.add(context)
        return context

    def report_refused(
        self, info: RequestInfo, error: InferenceError, model_name: str, *, explanation: bool = False
    ) -> InferenceError:
        """Record and report a request that was refused before it was read. Return `error` for the caller to raise."""
        context = self.new_context(info, model_name, explanation=explanation)
        context.error = error
        self.report(context)
        return error

    def report_refused_unread(self, info: RequestInfo, error: InferenceError, model_name: str, count: int) -> None:
        """Report `count` requests that were refused before they were read. They are not recorded."""
        context = RequestContext(info, model_name)
        context.error = error
        self._observe(msgspec.structs.replace(context.event, count=count))

    def fail_unfinished(self, error: InferenceError) -> None:
        """Report all requests that are not finished as failed with `error`, even if their workers still run."""
        for context in tuple(self._unfinished):
            context.error = context.error or error
            self.report(context)

    def predict(self, request: InferenceRequest) -> InferenceResponse:
        """Answer a request without reporting it to observers.

        Raises:
            InferenceError: for every failure.
        """
        registration = self._registry.find(request.model_name, request.model_version)
        return _response(request, registration, registration.ready_servable().predict(request, self._limits))

    def handle(
        self,
        context: RequestContext,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
    ) -> WireT:
        """Answer a request with one response.

        Raises:
            InferenceError: for every failure.
        """
        context.start()
        try:
            with self._capture_errors(context), cancellation_scope(context.token):
                raise_if_cancelled()
                request, registration = self._decode(context, decode)
                context.result = result = registration.ready_servable().predict(request, self._limits)
                response = _response(request, registration, result)
                encoded = encode(self._annotated(context, result, response))
                # An answer after cancellation counts as cancelled, for the client and for the metrics.
                raise_if_cancelled()
                return encoded
        finally:
            self.report(context)

    def explain(
        self,
        context: RequestContext,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse, Explanations], WireT],
        should_continue: Callable[[], bool],
    ) -> WireT:
        """Answer a request and explain the answer with the samples taken while `should_continue` returns True.

        Raises:
            InferenceError: for every failure.
        """
        context.start()
        try:
            with self._capture_errors(context):
                request, registration = self._decode(context, decode)
                explained = explain_request(
                    registration.ready_servable(), request, self._limits, should_continue, context.token.remaining
                )
                context.result, context.explanation_samples = explained.result, explained.samples
                response = _response(request, registration, explained.result)
                return encode(self._annotated(context, explained.result, response), explained.explanations)
        finally:
            self.report(context)

    def stream_text(self, context: RequestContext, decode: Callable[[], InferenceRequest]) -> Generator[Chunk]:
        """Yield the chunks of generated text. The reader reports the request.

        Raises:
            InferenceError: for every failure.
        """
        context.start()
        with self._capture_errors(context):
            yield from text_chunks(context, *self._decode(context, decode), self._limits)

    def stream_outputs(
        self,
        context: RequestContext,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
        encode_chunk: Callable[[Chunk], WireT | None],
    ) -> Generator[WireT]:
        """Yield encoded chunks of text, or encoded responses of one sample each. The reader reports the request.

        Raises:
            InferenceError: for every failure.
        """
        context.start()
        with self._capture_errors(context):
            request, registration = self._decode(context, decode)
            if registration.ready_servable().streams:
                with closing(text_chunks(context, request, registration, self._limits)) as chunks:
                    for chunk in chunks:
                        if (output := encode_chunk(chunk)) is not None:
                            yield output
                return
            for result in sample_results(context, request, registration, self._limits):
                yield encode(_response(request, registration, result))

    def report(self, context: RequestContext) -> None:
        """Record a finished request, then report it to the observers. Does nothing if it was reported before."""
        if not context.finish():
            return
        self._unfinished.discard(context)
        event = context.event
        recorded = self._record_sink.record(event) if self._record_sink is not None else None
        if recorded is None:
            self._observe(event)
            return
        context.recorded = recorded
        # If recording fails, the client gets that error. Observers therefore wait for the outcome.
        recorded.add_done_callback(partial(self._on_recorded, event))

    def _on_recorded(self, event: InferenceEvent, recorded: Future[None]) -> None:
        error = None if recorded.cancelled() else recorded.exception()
        if event.outcome is None and isinstance(error, InferenceError):
            event = msgspec.structs.replace(event, outcome=error.kind, error=str(error))
        self._observe(msgspec.structs.replace(event, total=time.perf_counter_ns() - event.arrived))

    def _observe(self, event: InferenceEvent) -> None:
        for observer in (*(() if event.explanation else self._prediction_observers), *self._observers):
            try:
                observer.observe(event)
            except Exception:
                _logger.exception("observer failed")

    def _annotated(
        self, context: RequestContext, result: InferenceResult, response: InferenceResponse
    ) -> InferenceResponse:
        """Return `response` with the parameters that the annotators return."""
        outputs = response.outputs
        for annotator in self._annotators:
            if additions := annotator(context.info, result, response.model_name):
                outputs = [
                    msgspec.structs.replace(output, parameters={**output.parameters, **parameters})
                    for output, parameters in zip(outputs, additions, strict=True)
                ]
        return response if outputs is response.outputs else msgspec.structs.replace(response, outputs=outputs)

    def _decode(
        self, context: RequestContext, decode: Callable[[], InferenceRequest]
    ) -> tuple[InferenceRequest, Registration]:
        context.check_queue_time()
        context.request = request = decode()
        if request.timeout is not None:
            context.set_timeout(request.timeout)
        check_request(request, self._limits)
        context.registration = registration = self._registry.find(request.model_name, request.model_version)
        return request, registration

    @contextmanager
    def _capture_errors(self, context: RequestContext) -> Generator[None]:
        """Set every exception as the error of `context`, and raise it as an `InferenceError`."""
        try:
            yield
        except InferenceError as error:
            if error.kind in (ErrorKind.MODEL_FAILED, ErrorKind.INTERNAL):
                _logger.exception("inference failed", extra={"request_id": context.info.request_id})
            located = context.request.locate(error) if context.request else error
            context.error = located
            if located is error:
                raise
            raise located from None
        except Exception as error:
            _logger.exception("inference failed", extra={"request_id": context.info.request_id})
            message = f"Something went wrong in the server; see its log for request {context.info.request_id}"
            context.error = InferenceError(ErrorKind.INTERNAL, message)
            raise context.error from error


def _response(request: InferenceRequest, registration: Registration, result: InferenceResult) -> InferenceResponse:
    outputs = [msgspec.structs.replace(output, parameters=annotate(output.parameters)) for output in result.outputs]
    return InferenceResponse(
        id=request.id,
        model_name=registration.source.name,
        model_version=registration.source.version,
        outputs=outputs,
    )
