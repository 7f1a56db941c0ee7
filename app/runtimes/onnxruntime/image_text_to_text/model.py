"""A vision-language model: pictures and questions to answers."""

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.image_text_to_text.decoder import Decoder
from app.runtimes.onnxruntime.image_text_to_text.pixels import Tiles
from app.runtimes.onnxruntime.image_text_to_text.prompting import ImageMarkup, PromptEncoder, PromptIds
from app.runtimes.onnxruntime.image_text_to_text.vision import VisionEncoder
from app.runtimes.sampling import Sampler
from app.runtimes.tokenizer import Tokenizer
from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.image_text_to_text import Answers, GenerationParameters, PromptedImage, stripped
from tasks.task import TextPiece
from tasks.vision.image import Image

__all__ = ("EncodedImage", "VisionLanguage")


class EncodedImage(msgspec.Struct, frozen=True, eq=False):
    """An image as the language model reads it.

    Attributes:
        ids: the token ids that stand for it.
        features: (number, width), one for each image token among `ids`, in their order.
    """

    ids: list[int]
    features: NDArray[Any]


class VisionLanguage(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Answers questions about pictures. Nothing in it changes, so that several threads may ask at once.

    Attributes:
        prepare: a picture to the vision encoder's input.
        vision: the vision encoder.
        markup: the token ids around an image.
        prompts: questions to token ids.
        tokenizer: token ids to text.
        decoder: the language model.
        image_id: the token that image features take the place of.
        ends: tokens that end an answer.
        positions: the most tokens of question, image and answer together; None when the model does not say.
    """

    prepare: Callable[[Image], Tiles]
    vision: VisionEncoder
    markup: ImageMarkup
    prompts: PromptEncoder
    tokenizer: Tokenizer
    decoder: Decoder
    image_id: int
    ends: Collection[int]
    positions: int | None

    def __call__(self, inputs: Sequence[PromptedImage], /) -> list[Answers]:
        questions = self._read(inputs)
        return [self._answer(item, read) for item, read in zip(inputs, questions, strict=True)]

    def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextPiece]:
        """The same answers token by token; each ends with an empty piece, because no token knows that it is the last.

        Raises:
            InferenceError: INVALID_REQUEST for a question that the model cannot use.
        """
        return self._stream(inputs, self._read(inputs))

    def look(self, image: Image) -> EncodedImage:
        """Run the vision encoder.

        Raises:
            InferenceError: MODEL_FAILED.
        """
        tiles = self.prepare(image)
        features = self.vision(tiles)
        each, rest = divmod(len(features), tiles.count)
        ids = self.markup.ids(tiles.rows, tiles.columns, each)
        if rest or ids.count(self.image_id) != len(features):
            message = f"The model failed: {len(features)} image features do not fit {tiles.count} tiles"
            raise InferenceError(ErrorKind.MODEL_FAILED, message)
        return EncodedImage(ids, features)

    def generate(
        self, image: EncodedImage, prompt: PromptIds, parameters: GenerationParameters, path: str
    ) -> Iterator[str]:
        """The answer to one question, piece by piece while it is made.

        Args:
            image: what is asked about.
            prompt: the question.
            parameters: how the answer is generated.
            path: the field that the question came in, for errors.

        Yields:
            Text; whole characters only.

        Raises:
            InferenceError: INVALID_REQUEST when the question leaves no room for an answer; MODEL_FAILED.
        """
        ids = prompt.before + image.ids + prompt.after
        most = parameters.max_new_tokens
        if self.positions is not None:
            if len(ids) >= self.positions:
                message = (
                    f"Expected a text that leaves room for an answer among the model's {self.positions} tokens, "
                    f"got {len(ids)} tokens, {len(image.ids)} of them the image"
                )
                raise invalid(message, path)
            most = min(most, self.positions - len(ids))
        return self.tokenizer.pieces(self._tokens(ids, image, Sampler(parameters), most))

    def _read(self, inputs: Sequence[PromptedImage]) -> list[list[PromptIds]]:
        # Every question is read before the first picture is looked at, which takes a thousand times longer.
        return [
            [self.prompts.encode(text, _path(item, index)) for index, text in enumerate(item.prompts)]
            for item in inputs
        ]

    def _answer(self, item: PromptedImage, questions: Sequence[PromptIds]) -> Answers:
        answers = ["".join(pieces).strip() for pieces in self._begin(item, questions)]
        return Answers(prompts=item.prompts, answers=answers)

    def _stream(
        self, inputs: Sequence[PromptedImage], questions: Sequence[Sequence[PromptIds]]
    ) -> Generator[TextPiece]:
        for index, (item, read) in enumerate(zip(inputs, questions, strict=True)):
            for prompt, pieces in enumerate(self._begin(item, read)):
                for text in stripped(pieces):
                    yield TextPiece(item=index, prompt=prompt, text=text)
                yield TextPiece(item=index, prompt=prompt, text="", final=True)

    def _begin(self, item: PromptedImage, questions: Sequence[PromptIds]) -> list[Iterator[str]]:
        image = self.look(item.image)
        return [
            self.generate(image, question, item.parameters, _path(item, index))
            for index, question in enumerate(questions)
        ]

    def _tokens(self, ids: list[int], image: EncodedImage, sampler: Sampler, most: int) -> Iterator[int]:
        yield from self.decoder.tokens(self._embed(ids, image), sampler, self.ends, most)

    def _embed(self, ids: list[int], image: EncodedImage) -> NDArray[Any]:
        places = np.asarray(ids) == self.image_id
        # The image token may lie outside of the embedding's vocabulary; its embedding is replaced anyway.
        embeddings = self.decoder.embed([0 if each == self.image_id else each for each in ids])
        if image.features.shape[1] != embeddings.shape[-1]:
            found = f"{image.features.shape[1]} numbers wide, embeddings {embeddings.shape[-1]}"
            raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: its image features are {found}")
        merged = embeddings.copy()
        merged[0, places] = image.features.astype(merged.dtype, copy=False)
        return merged


def _path(item: PromptedImage, index: int) -> str:
    return f"{item.path}[{index}]"
