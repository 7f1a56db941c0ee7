"""The sources of a streamed answer: chunks of text, or results of single samples."""

from collections.abc import Generator

from app.engine.answered import Datum, InferenceResult, Timings
from app.engine.registry import Registration
from app.engine.story import RequestContext
from app.engine.streaming import Piece
from metadata.rule import annotate
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest

__all__ = ("single_answers", "text_pieces")


def text_pieces(
    story: RequestContext, request: InferenceRequest, registration: Registration, limits: Limits
) -> Generator[Piece]:
    """Yield the chunks of a model that `Servable.streams`; set the result of `story` at the end."""
    stream = registration.ready_servable().stream(request, limits)
    parameters = [annotate(place.parameters) for place in stream.places]
    try:
        for piece in stream:
            place = stream.places[piece.item]
            yield Piece(
                id=request.id,
                model_name=registration.source.name,
                model_version=registration.source.version,
                input=place.input,
                image=place.image,
                prompt=piece.prompt,
                text=piece.text,
                final=piece.final,
                parameters=parameters[piece.item],
            )
    finally:
        timings = Timings(decode=stream.decode, model=stream.model)
        data = [
            Datum(input=place.input_index, index=place.image, item=place.item, prediction=prediction)
            for place, prediction in stream.gathered()
        ]
        story.answered = InferenceResult(outputs=(), batch_size=len(stream.places), timings=timings, data=data)


def single_answers(
    story: RequestContext, request: InferenceRequest, registration: Registration, limits: Limits
) -> Generator[InferenceResult]:
    """Yield the results of `Servable.answer_singly`; add each to the result of `story`."""
    for answered in registration.ready_servable().answer_singly(request, limits):
        story.answered = answered if story.answered is None else story.answered.and_then(answered)
        yield answered
