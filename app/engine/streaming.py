"""Answers in text that are told while they are made: what they consist of."""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from app.engine.reasons import told
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.response import Prediction
from tasks.task import TextPiece

__all__ = ("Piece", "Place", "TextStream")

_logger = logging.getLogger(__name__)


class Place(msgspec.Struct, frozen=True, eq=False):
    """Where in a request an image stands.

    Attributes:
        input: the name of the input.
        input_index: which input of the request that is.
        image: which image of that input.
        item: what the model is shown of it.
        parameters: the input's own parameters as they came.
    """

    input: str
    input_index: int
    image: int
    item: Any
    parameters: Mapping[str, object]


class Piece(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A part of the answer to one prompt, put to one image. Joined, an answer's texts are what `infer` answers.

    Answers come one after the other, in the order of the inputs, their images, and the prompts put to each.

    Attributes:
        id: the request's.
        model_name: the model that answers.
        model_version: the version of it.
        input: the name of the input, which an output of an inference would take over.
        image: which image of that input.
        prompt: which prompt put to that image.
        text: may be empty.
        final: whether the answer ends with this piece. Every answer has one such piece.
        parameters: of the output, the same on every piece: the echo of the input's metadata.
    """

    id: str
    model_name: str
    model_version: str
    input: str
    image: int
    prompt: int
    text: str
    final: bool
    parameters: Mapping[str, object]


class TextStream:
    """What a model says to one request, and an account of the time it takes.

    Args:
        pieces: of all answers; closed at the end.
        places: where the images stand, by `TextPiece.item`.
        decode: nanoseconds that reading the request took.
        gather: makes the prediction of an item's whole answers, by prompt.
    """

    def __init__(
        self,
        pieces: Generator[TextPiece],
        places: Sequence[Place],
        decode: int,
        gather: Callable[[Any, Sequence[str]], Prediction],
    ) -> None:
        self.places = places
        self.decode = decode
        self.model = 0
        self._pieces = pieces
        self._gather = gather
        self._said: dict[int, list[list[str]]] = {}

    def gathered(self) -> Sequence[tuple[Place, Prediction]]:
        """What was said so far, as predictions, with the places that they answer."""
        return [
            (self.places[item], self._gather(self.places[item].item, ["".join(each) for each in prompts]))
            for item, prompts in self._said.items()
        ]

    def __iter__(self) -> Iterator[TextPiece]:
        """The pieces.

        Raises:
            InferenceError: MODEL_FAILED for whatever the model raises, but an `InferenceError` of its own.
        """
        try:
            while True:
                piece = self._next()
                if piece is None:
                    return
                self._keep(piece)
                yield piece
        finally:
            self._close()

    def _close(self) -> None:
        try:
            self._pieces.close()
        except BaseException:  # an order to stop among them, which is nobody's but the model's
            _logger.exception("a stream could not be closed")

    def _next(self) -> TextPiece | None:
        began = time.perf_counter_ns()
        try:
            return next(self._pieces, None)
        except InferenceError:
            raise
        except BaseException as error:
            # As for an answer as a whole: no order to stop of a model's is obeyed.
            raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: {told(error)}") from error
        finally:
            self.model += time.perf_counter_ns() - began

    def _keep(self, piece: TextPiece) -> None:
        prompts = self._said.setdefault(piece.item, [])
        while len(prompts) <= piece.prompt:
            prompts.append([])
        prompts[piece.prompt].append(piece.text)
