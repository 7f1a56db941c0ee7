"""What a worker thread does with one request, from the bytes that came to the bytes that go."""

import logging
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from typing import TypeVar

import msgspec

from app.engine.answered import Answered
from app.engine.events import Addition, Caller, InferenceEvent, InferenceObserver, Keeper
from app.engine.explain import explained
from app.engine.interest import check_interest, on_behalf_of
from app.engine.parts import single_answers, text_pieces
from app.engine.registry import Registration, Registry
from app.engine.story import Story
from app.engine.streaming import Piece
from metadata.rule import annotate
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits, check_request
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.explanation.explanation import Explanation

__all__ = ("Answering", "Explanations")

WireT = TypeVar("WireT")

Explanations = Sequence[Sequence[Sequence[Explanation]]]
"""For each output of a response, for each of its images, one for each finding that is explained."""

_logger = logging.getLogger(__name__)


class Answering:
    """Finds the models of requests, has them answer, and tells the observers how that went.

    Args:
        registry: has the models.
        limits: how much of one request is worked on.
        observers: told of every request.
        counting: told of every request but explanations, of which one takes as long as hundreds of the others.
        additions: asked for parameters of every answer but those that are told in parts.
        keeper: keeps every request, in the end.
    """

    def __init__(
        self,
        registry: Registry,
        limits: Limits,
        observers: Sequence[InferenceObserver],
        counting: Sequence[InferenceObserver],
        additions: Sequence[Addition] = (),
        keeper: Keeper | None = None,
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._observers = observers
        self._counting = counting
        self._additions = additions
        self._keeper = keeper
        self._open: set[Story] = set()

    def begun(
        self, caller: Caller, model_name: str, deadline: float | None = None, *, explanation: bool = False
    ) -> Story:
        """The story of a request that has come, which is to be told once."""
        story = Story(caller, model_name, deadline, explanation=explanation)
        self._open.add(story)
        return story

    def refused(
        self, caller: Caller, error: InferenceError, model_name: str, *, explanation: bool = False
    ) -> InferenceError:
        """Tell of a request that was refused before it was read; gives `error` back, to be raised."""
        story = self.begun(caller, model_name, explanation=explanation)
        story.error = error
        self.tell(story)
        return error

    def abandon(self, error: InferenceError) -> None:
        """Tell of all requests that are not told yet that they ended with `error`, whatever their workers still do."""
        for story in tuple(self._open):
            story.error = story.error or error
            self.tell(story)

    def answer(self, request: InferenceRequest) -> InferenceResponse:
        """The answer to a request, of which no observer is told.

        Raises:
            InferenceError: whatever went wrong.
        """
        registration = self._registry.find(request.model_name, request.model_version)
        return _response(request, registration, registration.ready_servable().answer(request, self._limits))

    def exchange(
        self, story: Story, decode: Callable[[], InferenceRequest], encode: Callable[[InferenceResponse], WireT]
    ) -> WireT:
        """Answer a request as a whole.

        Raises:
            InferenceError: whatever went wrong.
        """
        story.begin()
        try:
            with self._failures(story), on_behalf_of(story.interest):
                check_interest()
                request, registration = self._read(story, decode)
                story.answered = answered = registration.ready_servable().answer(request, self._limits)
                response = _response(request, registration, answered)
                written = encode(self._supplemented(story, answered, response))
                # An answer that nobody waited for is none, to whoever asked as to whoever counts.
                check_interest()
                return written
        finally:
            self.tell(story)

    def explain(
        self,
        story: Story,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse, Explanations], WireT],
        go_on: Callable[[], bool],
    ) -> WireT:
        """Answer a request and explain the answer, as well as that can be done while `go_on` says yes.

        Raises:
            InferenceError: whatever went wrong.
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

    def pieces(self, story: Story, decode: Callable[[], InferenceRequest]) -> Generator[Piece]:
        """The pieces of a text while it is made. Whoever reads them tells the story.

        Raises:
            InferenceError: whatever went wrong.
        """
        story.begin()
        with self._failures(story):
            yield from text_pieces(story, *self._read(story, decode), self._limits)

    def parts(
        self,
        story: Story,
        decode: Callable[[], InferenceRequest],
        encode: Callable[[InferenceResponse], WireT],
        encode_piece: Callable[[Piece], WireT | None],
    ) -> Generator[WireT]:
        """The pieces of a text, or the answers to single data, written. Whoever reads them tells the story.

        Raises:
            InferenceError: whatever went wrong.
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

    def tell(self, story: Story) -> None:
        """A request has come to its end: have it kept, then tell the observers. Once; another time nothing happens."""
        if not story.conclude():
            return
        self._open.discard(story)
        event = story.event
        kept = self._keeper.keep(event) if self._keeper is not None else None
        if kept is None:
            self._observe(event)
            return
        story.kept = kept
        # What cannot be kept is not answered, so that nobody is to be told of an answer before.
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

    def _supplemented(self, story: Story, answered: Answered, response: InferenceResponse) -> InferenceResponse:
        """`response` with what the additions have to say."""
        outputs = response.outputs
        for addition in self._additions:
            if said := addition(story.caller, answered, response.model_name):
                outputs = [
                    msgspec.structs.replace(output, parameters={**output.parameters, **more})
                    for output, more in zip(outputs, said, strict=True)
                ]
        return response if outputs is response.outputs else msgspec.structs.replace(response, outputs=outputs)

    def _read(self, story: Story, decode: Callable[[], InferenceRequest]) -> tuple[InferenceRequest, Registration]:
        story.request = request = decode()
        check_request(request, self._limits)
        story.registration = registration = self._registry.find(request.model_name, request.model_version)
        return request, registration

    @contextmanager
    def _failures(self, story: Story) -> Generator[None]:
        """Whatever goes wrong inside is told to `story`, and leaves as an `InferenceError`."""
        try:
            yield
        except InferenceError as error:
            if error.kind in (ErrorKind.MODEL_FAILED, ErrorKind.INTERNAL):
                _logger.exception("inference failed", extra={"request_id": story.caller.request_id})
            story.error = error
            raise
        except Exception as error:
            _logger.exception("inference failed", extra={"request_id": story.caller.request_id})
            message = f"Something went wrong in the server; its log tells what, under request {story.caller.request_id}"
            story.error = InferenceError(ErrorKind.INTERNAL, message)
            raise story.error from error


def _response(request: InferenceRequest, registration: Registration, answered: Answered) -> InferenceResponse:
    outputs = [msgspec.structs.replace(output, parameters=annotate(output.parameters)) for output in answered.outputs]
    return InferenceResponse(
        id=request.id,
        model_name=registration.source.name,
        model_version=registration.source.version,
        outputs=outputs,
    )
