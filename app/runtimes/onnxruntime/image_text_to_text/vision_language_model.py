"""Answer prompts about images with a vision-language model."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.answer_tokens import AnswerTokens, answer_chunks
from app.runtimes.onnxruntime.image_text_to_text.decoder import Decoder
from app.runtimes.onnxruntime.image_text_to_text.pixels import Tiles
from app.runtimes.onnxruntime.image_text_to_text.prompting import PromptEncoder, PromptIds
from app.runtimes.onnxruntime.image_text_to_text.vision import VisionEncoder
from app.runtimes.sampling import ForcedTokens, Sampler, TokenPicker
from tasks.image_text_to_text import Answers, GenerationParameters, PromptedImage
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.task import TextChunk
from tasks.vision.image import Image


class EncodedImage(msgspec.Struct, frozen=True, eq=False):
    """An image as input of the language model.

    Attributes:
        ids: the token ids of the image.
        features: (number, width), one for each image token in `ids`, in order.
    """

    ids: list[int]
    features: NDArray[Any]


class OnnxVisionLanguageModel(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Answers prompts about images. It is immutable, so several threads may call it.

    Attributes:
        prepare: converts an image to the vision encoder's input.
        vision: the vision encoder.
        prompts: encodes prompts.
        decoder: the language model.
        max_positions: maximum tokens of prompt, image and answer together; None if the model does not declare it.
    """

    prepare: Callable[[Image], Tiles]
    vision: VisionEncoder
    prompts: PromptEncoder
    decoder: Decoder
    max_positions: int | None

    def __call__(self, inputs: Sequence[PromptedImage], /) -> list[Answers]:
        return [self._answer(item, prompts) for item, prompts in self._encode_all(inputs)]

    def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextChunk]:
        """Stream the answers token by token. Each ends with an empty final chunk, since no token is known to be last.

        Raises:
            InferenceError: INVALID_REQUEST for a prompt that the model cannot use.
        """
        return self._stream(self._encode_all(inputs))

    def log_likelihoods(
        self, inputs: Sequence[PromptedImage], answers: Sequence[Answers], /
    ) -> list[NDArray[np.float64]]:
        """Return (prompts,) for each input: the log-likelihood of the tokens of each answer."""
        return [self._log_likelihoods(item, answer.tokens or ()) for item, answer in zip(inputs, answers, strict=True)]

    def encode_image(self, image: Image) -> EncodedImage:
        """Run the vision encoder."""
        tiles = self.prepare(image)
        features = self.vision(tiles)
        per_tile, remainder = divmod(len(features), tiles.count)
        ids = self.prompts.image_ids(tiles.rows, tiles.columns, per_tile)
        if remainder or ids.count(self.prompts.image_id) != len(features):
            message = f"The model failed: {len(features)} image features do not fit {tiles.count} tiles"
            raise InferenceError(ErrorKind.MODEL_FAILED, message)
        return EncodedImage(ids, features)

    def generate(
        self, images: Sequence[EncodedImage], prompt: PromptIds, parameters: GenerationParameters, path: str
    ) -> AnswerTokens:
        """Return the answer to one prompt, whose tokens are generated when they are read.

        Args:
            images: the encoded images.
            prompt: the encoded prompt, with a place for each image.
            parameters: generation parameters.
            path: path of the prompt in the request, for errors.

        Raises:
            InferenceError: INVALID_REQUEST if the prompt fills the model's context; MODEL_FAILED.
        """
        ids = _input_ids(images, prompt)
        max_tokens = parameters.max_new_tokens
        if self.max_positions is not None:
            if len(ids) >= self.max_positions:
                image_ids = sum(len(image.ids) for image in images)
                message = (
                    f"Expected a text that leaves room for an answer among the model's {self.max_positions} tokens, "
                    f"got {len(ids)} tokens, {image_ids} of them the {'image' if len(images) == 1 else 'images'}"
                )
                raise invalid(message, path)
            max_tokens = min(max_tokens, self.max_positions - len(ids))
        tokens = self._tokens(ids, images, Sampler(parameters), max_tokens)
        return AnswerTokens(tokens, len(ids), self.prompts.end_tokens)

    def _encode_all(self, inputs: Sequence[PromptedImage]) -> list[tuple[PromptedImage, list[PromptIds]]]:
        # Validate all prompts before the first image is encoded, which takes about a thousand times longer.
        return [(item, self._encode(item)) for item in inputs]

    def _encode(self, item: PromptedImage) -> list[PromptIds]:
        if item.parameters.messages is not None:
            return [self.prompts.encode_messages(item.parameters.messages, item.path)]
        return [self.prompts.encode(text, _path(item, index)) for index, text in enumerate(item.prompts)]

    def _answer(self, item: PromptedImage, prompts: Sequence[PromptIds]) -> Answers:
        begun = self._begin(item, prompts)
        tokens = [list(answer) for answer in begun]
        answers = ["".join(self.prompts.tokenizer.decode_stream(ids)) for ids in tokens]
        usage = [answer.usage for answer in begun]
        return Answers(prompts=item.prompts, answers=answers, tokens=tokens, usage=usage)

    def _stream(self, encoded: Sequence[tuple[PromptedImage, Sequence[PromptIds]]]) -> Generator[TextChunk]:
        for index, (item, prompts) in enumerate(encoded):
            for prompt, answer in enumerate(self._begin(item, prompts)):
                yield from answer_chunks(answer, self.prompts.tokenizer.decode_stream(answer), index, prompt)

    def _begin(self, item: PromptedImage, prompts: Sequence[PromptIds]) -> list[AnswerTokens]:
        images = self._images(item)
        return [
            self.generate(images, prompt, item.parameters, _path(item, index)) for index, prompt in enumerate(prompts)
        ]

    def _log_likelihoods(self, item: PromptedImage, answers: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        images = self._images(item)
        likelihoods: list[float] = []
        for prompt, tokens in zip(self._encode(item), answers, strict=True):
            forced = ForcedTokens(tokens)
            for _ in self._tokens(_input_ids(images, prompt), images, forced, len(tokens)):
                pass
            likelihoods.append(forced.log_likelihood)
        return np.array(likelihoods)

    def _images(self, item: PromptedImage) -> list[EncodedImage]:
        return [self.encode_image(image) for image in item.images]

    def _tokens(
        self, ids: list[int], images: Sequence[EncodedImage], sampler: TokenPicker, max_tokens: int
    ) -> Iterator[int]:
        yield from self.decoder.generate(self._embed(ids, images), sampler, self.prompts.end_tokens, max_tokens)

    def _embed(self, ids: list[int], images: Sequence[EncodedImage]) -> NDArray[Any]:
        image_positions = np.asarray(ids) == self.prompts.image_id
        # The image token may be outside the embedding's vocabulary; its embedding is replaced anyway.
        embeddings = self.decoder.embed([0 if id_ == self.prompts.image_id else id_ for id_ in ids])
        if not images:
            return embeddings
        features = np.concatenate([image.features for image in images])
        if features.shape[1] != embeddings.shape[-1]:
            description = f"{features.shape[1]} values wide, embeddings {embeddings.shape[-1]}"
            raise InferenceError(ErrorKind.MODEL_FAILED, f"The model failed: its image features are {description}")
        merged = embeddings.copy()
        merged[0, image_positions] = features.astype(merged.dtype, copy=False)
        return merged


def _input_ids(images: Sequence[EncodedImage], prompt: PromptIds) -> list[int]:
    ids = [*prompt[0]]
    for image, part in zip(images, prompt[1:], strict=True):
        ids += image.ids + part
    return ids


def _path(item: PromptedImage, index: int) -> str:
    return f"{item.path}[{index}]"
