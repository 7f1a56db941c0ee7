"""The parts of an answer that is told while it is made: pieces of text, or the answers to single data."""

from collections.abc import Generator

from app.engine.answered import Answered, Datum, Timings
from app.engine.registry import Registration
from app.engine.story import Story
from app.engine.streaming import Piece
from metadata.rule import annotate
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest

__all__ = ("single_answers", "text_pieces")


def text_pieces(
    story: Story, request: InferenceRequest, registration: Registration, limits: Limits
) -> Generator[Piece]:
    """The answers of a model that `Servable.streams`; `story` is told at the end what they took."""
    stream = registration.ready_servable().stream(request, limits)
    parameters = [annotate(place.parameters) for place in stream.places]
    try:
        for each in stream:
            place = stream.places[each.item]
            yield Piece(
                id=request.id,
                model_name=registration.source.name,
                model_version=registration.source.version,
                input=place.input,
                image=place.image,
                prompt=each.prompt,
                text=each.text,
                final=each.final,
                parameters=parameters[each.item],
            )
    finally:
        timings = Timings(decode=stream.decode, model=stream.model)
        data = [
            Datum(input=place.input_index, index=place.image, item=place.item, prediction=prediction)
            for place, prediction in stream.gathered()
        ]
        story.answered = Answered(outputs=(), batch_size=len(stream.places), timings=timings, data=data)


def single_answers(
    story: Story, request: InferenceRequest, registration: Registration, limits: Limits
) -> Generator[Answered]:
    """The answers of `Servable.answer_singly`; `story` is told what they took so far."""
    for answered in registration.ready_servable().answer_singly(request, limits):
        story.answered = answered if story.answered is None else story.answered.and_then(answered)
        yield answered
