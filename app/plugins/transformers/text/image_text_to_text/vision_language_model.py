"""Answer prompts about images with a vision-language model."""

import math
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.plugins.transformers.text.conversation import Conversation
from app.plugins.transformers.text.generation import EncodedPrompt, PromptedImageModel, Sampler
from app.plugins.transformers.text.image_text_to_text.graphs import Decoder, VisionEncoder
from app.plugins.transformers.text.tokenizer import Tokenizer
from tasks.image_text_to_text import PromptedImage
from tasks.inference.error import invalid, model_failed

_Inputs = tuple[NDArray[np.int64], NDArray[Any]]
"""Token ids (length,) of a prompt, and (number, width) features for the image tokens among them."""


class OnnxVisionLanguageModel(PromptedImageModel):
    """Answers prompts about images. Nothing in it changes, so several threads may call it.

    `max_positions` limits the tokens of prompt, image and answer together; None if the model does not declare it.
    """

    def __init__(
        self,
        conversation: Conversation,
        tokenizer: Tokenizer,
        end_tokens: frozenset[int],
        vision: VisionEncoder,
        decoder: Decoder,
        max_positions: int | None,
    ) -> None:
        super().__init__(conversation, self._continue, tokenizer, end_tokens)
        self.vision = vision
        self._decoder = decoder
        self._max_positions = max_positions

    def _encode_item(self, item: PromptedImage, texts: Sequence[str]) -> Iterator[EncodedPrompt]:
        """Yield each prompt with its images, which the vision encoder reads once.

        Raise INVALID_REQUEST if a prompt fills the model's context.
        """
        features: NDArray[Any] | None = None
        for index, text in enumerate(texts):
            path = f"{item.path}[{index}]"
            encoded = self._conversation.inputs(item.images, text, path)
            ids: NDArray[np.int64] = encoded["input_ids"][0]
            image_tokens = np.count_nonzero(ids == self._conversation.image_id)
            room = math.inf if self._max_positions is None else self._max_positions - len(ids)
            if room <= 0:
                images = "image" if len(item.images) == 1 else "images"
                message = (
                    f"Expected a text that leaves room for an answer among the model's {self._max_positions} tokens, "
                    f"got {len(ids)} tokens, {image_tokens} of them the {images}"
                )
                raise invalid(message, path)
            if features is None:
                features = self.vision(encoded) if item.images else np.zeros((0, 0))
            if image_tokens != len(features):
                raise model_failed(
                    f"The model failed: {len(features)} image features do not fit the {image_tokens} image tokens of "
                    f"its processor"
                )
            max_tokens = int(min(item.parameters.max_new_tokens, room))
            size = self._conversation.input_size(encoded)
            yield EncodedPrompt((ids, features), len(ids), max_tokens, input_size=size)

    def _continue(self, inputs: _Inputs, sampler: Sampler, max_tokens: int) -> Generator[int]:
        return self._decoder.generate(self._embed(inputs), sampler, max_tokens)

    def _embed(self, inputs: _Inputs) -> NDArray[Any]:
        ids, features = inputs
        is_image = ids == self._conversation.image_id
        # The image token may be outside the embedding's vocabulary; its embedding is replaced anyway.
        embeddings = self._decoder.embed(np.where(is_image, 0, ids))
        if not len(features):
            return embeddings
        if features.shape[1] != embeddings.shape[-1]:
            description = f"{features.shape[1]} values wide, embeddings {embeddings.shape[-1]}"
            raise model_failed(f"The model failed: its image features are {description}")
        merged = embeddings.copy()
        merged[0, is_image] = features.astype(merged.dtype, copy=False)
        return merged
