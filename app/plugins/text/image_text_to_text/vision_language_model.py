"""Answer prompts about images with a vision-language model."""

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.text.generation import EncodedPrompt, PromptedImageModel, TokenPicker
from app.plugins.text.image_text_to_text.graphs import Decoder, VisionEncoder
from app.plugins.text.image_text_to_text.pixels import Tiles
from app.plugins.text.image_text_to_text.prompting import PromptEncoder, PromptIds
from tasks.image_text_to_text import PromptedImage
from tasks.inference.error import invalid, model_failed
from tasks.vision.image import Image


class EncodedInputs(msgspec.Struct, frozen=True, eq=False):
    """An image, or a prompt with its images: token ids, and (number, width) features for the image tokens in them."""

    ids: list[int]
    features: NDArray[Any]


class OnnxVisionLanguageModel(PromptedImageModel):
    """Answers prompts about images. Nothing in it changes, so several threads may call it.

    `max_positions` limits the tokens of prompt, image and answer together; None if the model does not declare it.
    """

    def __init__(
        self,
        prepare: Callable[[Image], Tiles],
        vision: VisionEncoder,
        prompts: PromptEncoder,
        decoder: Decoder,
        max_positions: int | None,
    ) -> None:
        super().__init__(prompts.tokenizer, prompts.end_tokens)
        self.prepare = prepare
        self.prompts = prompts
        self._vision = vision
        self._decoder = decoder
        self._max_positions = max_positions

    def encode_image(self, image: Image) -> EncodedInputs:
        """Run the vision encoder."""
        tiles = self.prepare(image)
        features = self._vision(tiles)
        per_tile, remainder = divmod(len(features), tiles.count)
        ids = self.prompts.image_ids(tiles.rows, tiles.columns, per_tile)
        if remainder or ids.count(self.prompts.image_id) != len(features):
            raise model_failed(f"The model failed: {len(features)} image features do not fit {tiles.count} tiles")
        return EncodedInputs(ids, features)

    def _encode(self, inputs: Sequence[PromptedImage]) -> Iterable[Iterable[EncodedPrompt]]:
        # Validate all prompts before the first image is encoded, which takes about a thousand times longer.
        return map(self._encode_item, inputs, list(map(self._prompt_ids, inputs)))

    def _prompt_ids(self, item: PromptedImage) -> list[PromptIds]:
        if item.parameters.messages is not None:
            return [self.prompts.encode_messages(item.parameters.messages, item.path)]
        return [self.prompts.encode(text, f"{item.path}[{index}]") for index, text in enumerate(item.prompts)]

    def _encode_item(self, item: PromptedImage, prompts: Sequence[PromptIds]) -> list[EncodedPrompt]:
        """Insert the images into the prompts.

        Raises:
            InferenceError: INVALID_REQUEST if a prompt fills the model's context.
        """
        images = [self.encode_image(image) for image in item.images]
        features = np.concatenate([image.features for image in images]) if images else np.zeros((0, 0))
        encoded: list[EncodedPrompt] = []
        for index, (first, *others) in enumerate(prompts):
            ids = [*first]
            for image, part in zip(images, others, strict=True):
                ids += image.ids + part
            room = math.inf if self._max_positions is None else self._max_positions - len(ids)
            if room <= 0:
                image_ids = sum(len(image.ids) for image in images)
                message = (
                    f"Expected a text that leaves room for an answer among the model's {self._max_positions} tokens, "
                    f"got {len(ids)} tokens, {image_ids} of them the {'image' if len(images) == 1 else 'images'}"
                )
                raise invalid(message, f"{item.path}[{index}]")
            max_tokens = int(min(item.parameters.max_new_tokens, room))
            encoded.append(EncodedPrompt(EncodedInputs(ids, features), len(ids), max_tokens))
        return encoded

    def _generate(self, inputs: EncodedInputs, picker: TokenPicker, max_tokens: int) -> Generator[int]:
        yield from self._decoder.generate(self._embed(inputs), picker, self._end_tokens, max_tokens)

    _stream_tokens = _generate

    def _embed(self, inputs: EncodedInputs) -> NDArray[Any]:
        image_id = self.prompts.image_id
        # The image token may be outside the embedding's vocabulary; its embedding is replaced anyway.
        embeddings = self._decoder.embed([0 if id_ == image_id else id_ for id_ in inputs.ids])
        features = inputs.features
        if not len(features):
            return embeddings
        if features.shape[1] != embeddings.shape[-1]:
            description = f"{features.shape[1]} values wide, embeddings {embeddings.shape[-1]}"
            raise model_failed(f"The model failed: its image features are {description}")
        merged = embeddings.copy()
        merged[0, np.asarray(inputs.ids) == image_id] = features.astype(merged.dtype, copy=False)
        return merged
