"""Process one request in a worker thread, from the decoder of its body to the encoder of its response."""

import logging
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from typing import TypeVar

import msgspec

from app.engine.answered import InferenceResult
from app.engine.events import InferenceEvent, InferenceObserver, OutputAnnotator, RecordSink, RequestInfo
from app.engine.explain import explained
from app.engine.interest import check_interest, on_behalf_of
from app.engine.parts import single_answers, text_pieces
from app.engine.registry import Registration, Registry
from app.engine.story import RequestContext
from app.engine.streaming import Piece
from metadata.rule import annotate
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits, check_request
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.explanation.explanation import Explanation

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
        counting: receive the event of every request except explanations, which take hundreds of times as long.
        additions: add parameters to every response that is not streamed.
        keeper: records every request.
    """

    def __init__(
        self,
        registry: Registry,
        limits: Limits,
        observers: Sequence[InferenceObserver],
        counting: Sequence[InferenceObserver],
        additions: Sequence[OutputAnnotator] = (),
        keeper: RecordSink | None = None,
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._observers = observers
        self._counting = counting
        self._additions = additions
        self._keeper = keeper
        self._open: set[RequestContext] = set()

    def begun(
        self, caller: RequestInfo, model_name: str, deadline: float | None = None, *, explanation: bool = False
    ) -> RequestContext:
        """Return the context of a new request; `tell` reports it once."""
        story = RequestContext(caller, model_name, deadline, explanation=explanation)
        self._open.add(story)
        return story

    def refused(
        self, caller: RequestInfo, error: InferenceError, model_name: str, *, explanation: bool = False
    ) -> InferenceError:
        """Report a request that was refused before it was read. Returns `error`, so that the caller can raise it."""
        story = self.begun(caller, model_name, explanation=explanation)
        story.error = error
        self.tell(story)
        return error

    def refused_unread(self, caller: RequestInfo, error: InferenceError, model_name: str, count: int) -> None:
        """Report `count` requests that were refused before they were read. They are not recorded."""
        story = RequestContext(caller, model_name)
        story.error = error
        self._observe(msgspec.structs.replace(story.event, count=count))

    def abandon(self, error: InferenceError) -> None:
        """Report all requests that are not finished as failed with `error`, even if their workers still run."""
        for story in tuple(self._open):
            story.error = story.error or error
            self.tell(story)

    def answer(self, request: InferenceRequest) -> InferenceResponse:
        """Answer a request without reporting it to observers.

        Raises:
            InferenceError: for every failure.
        """
        registration = self._registry.find(request.model_name, request.model_version)
        return _response(request, registration, registration.ready_servable().answer(request, self._limits))

    def exchange(
        self,
        story: RequestContext,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
    ) -> WireT:
        """Answer a request with one response.

        Raises:
            InferenceError: for every failure.
        """
        story.begin()
        try:
            with self._failures(story), on_behalf_of(story.interest):
                check_interest()
                request, registration = self._read(story, decode)
                story.answered = answered = registration.ready_servable().answer(request, self._limits)
                response = _response(request, registration, answered)
                written = encode(self._supplemented(story, answered, response))
                # An answer after cancellation counts as cancelled, for the client and for the metrics.
                check_interest()
                return written
        finally:
            self.tell(story)

    def explain(
        self,
        story: RequestContext,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse, Explanations], WireT],
        go_on: Callable[[], bool],
    ) -> WireT:
        """Answer a request and explain the answer with the samples taken while `go_on` returns True.

        Raises:
            InferenceError: for every failure.
        """
        story.begin()
        try:
            with self._failures(story):
                request, registration = self._read(story, decode)
                made = explained(registration.ready_servable(), request, self._limits, go_on, story.interest.left)
                story.answered, story.samples = made.answered, made.samples
                response = _response(request, registration, made.answered)
                return encode(self._supplemented(story, made.answered, response), made.explanations)
        finally:
            self.tell(story)

    def pieces(self, story: RequestContext, decode: Callable[[], InferenceRequest]) -> Generator[Piece]:
        """Yield the chunks of generated text. The reader reports the request.

        Raises:
            InferenceError: for every failure.
        """
        story.begin()
        with self._failures(story):
            yield from text_pieces(story, *self._read(story, decode), self._limits)

    def parts(
        self,
        story: RequestContext,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
        encode_piece: Callable[[Piece], WireT | None],
    ) -> Generator[WireT]:
        """Yield encoded chunks of text, or encoded responses of one sample each. The reader reports the request.

        Raises:
            InferenceError: for every failure.
        """
        story.begin()
        with self._failures(story):
            request, registration = self._read(story, decode)
            if registration.ready_servable().streams:
                with closing(text_pieces(story, request, registration, self._limits)) as pieces:
                    for piece in pieces:
                        if (part := encode_piece(piece)) is not None:
                            yield part
                return
            for answered in single_answers(story, request, registration, self._limits):
                yield encode(_response(request, registration, answered))

    def tell(self, story: RequestContext) -> None:
        """Record a finished request, then report it to the observers. Does nothing if it was reported before."""
        if not story.conclude():
            return
        self._open.discard(story)
        event = story.event
        kept = self._keeper.keep(event) if self._keeper is not None else None
        if kept is None:
            self._observe(event)
            return
        story.kept = kept
        # If recording fails, the client gets that error. Observers therefore wait for the outcome.
        kept.add_done_callback(partial(self._kept, event))

    def _kept(self, event: InferenceEvent, kept: Future[None]) -> None:
        error = None if kept.cancelled() else kept.exception()
        if event.outcome is None and isinstance(error, InferenceError):
            event = msgspec.structs.replace(event, outcome=error.kind, error=str(error))
        self._observe(msgspec.structs.replace(event, total=time.perf_counter_ns() - event.arrived))

    def _observe(self, event: InferenceEvent) -> None:
        for observer in (*(() if event.explanation else self._counting), *self._observers):
            try:
                observer.observe(event)
            except Exception:
                _logger.exception("observer failed")

    def _supplemented(
        self, story: RequestContext, answered: InferenceResult, response: InferenceResponse
    ) -> InferenceResponse:
        """Return `response` with the parameters that the additions return."""
        outputs = response.outputs
        for addition in self._additions:
            if added := addition(story.caller, answered, response.model_name):
                outputs = [
                    msgspec.structs.replace(output, parameters={**output.parameters, **parameters})
                    for output, parameters in zip(outputs, added, strict=True)
                ]
        return response if outputs is response.outputs else msgspec.structs.replace(response, outputs=outputs)

    def _read(
        self, story: RequestContext, decode: Callable[[], InferenceRequest]
    ) -> tuple[InferenceRequest, Registration]:
        story.check_queue_time()
        story.request = request = decode()
        if request.timeout is not None:
            story.limit(request.timeout)
        check_request(request, self._limits)
        story.registration = registration = self._registry.find(request.model_name, request.model_version)
        return request, registration

    @contextmanager
    def _failures(self, story: RequestContext) -> Generator[None]:
        """Set every exception as the error of `story`, and raise it as an `InferenceError`."""
        try:
            yield
        except InferenceError as error:
            if error.kind in (ErrorKind.MODEL_FAILED, ErrorKind.INTERNAL):
                _logger.exception("inference failed", extra={"request_id": story.caller.request_id})
            located = story.request.located(error) if story.request else error
            story.error = located
            if located is error:
                raise
            raise located from None
        except Exception as error:
            _logger.exception("inference failed", extra={"request_id": story.caller.request_id})
            message = f"Something went wrong in the server; see its log for request {story.caller.request_id}"
            story.error = InferenceError(ErrorKind.INTERNAL, message)
            raise story.error from error


def _response(request: InferenceRequest, registration: Registration, answered: InferenceResult) -> InferenceResponse:
    outputs = [msgspec.structs.replace(output, parameters=annotate(output.parameters)) for output in answered.outputs]
    return InferenceResponse(
        id=request.id,
        model_name=registration.source.name,
        model_version=registration.source.version,
        outputs=outputs,
    )
