"""Compute class scores of texts, in batches if batching does not change the scores.

Shorter texts are padded to the longest in the batch, and the attention mask hides the padding. Some architectures still
change their scores, so each load tests this. A model that fails the test processes texts one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.tokenizing import (
    check_length,
    copy_tokenizer,
    load_tokenizer,
    max_text_tokens,
    text_inputs,
)
from tasks.inference.error import invalid
from tasks.text.request import TextItem

TOLERANCE = 1e-5
"""Maximum difference of a score between a batch and a single text."""

_MAX_BATCH = 32
_MAX_BATCH_TOKENS = 4096
"""Tokens in one call of the model, including padding."""

_SENTENCE = "What is in the image, and who lives in Paris? "
_PROBES = ("a", "Hello, world.", _SENTENCE, _SENTENCE * 3, "Hello, world. " * 20)

Scored = tuple[Any, NDArray[np.float32]]
"""A text's encoding by the tokenizers package, and its scores."""


class TextScorer:
    """Scores texts with a model. Several threads may call it.

    Args:
        spec: the model and its source.
        network: its weights.
        scores: converts a batch of logits to scores.

    Attributes:
        tokenizer: transformers' tokenizer.
        raw_tokenizer: the underlying tokenizer, which has no state.
        is_batched: whether texts are processed in batches.

    Raises:
        ModelError: if the model has no tokenizer.
    """

    def __init__(self, spec: ModelSpec, network: Network, scores: Callable[[Any], NDArray[np.float32]]) -> None:
        self.tokenizer: Any = load_tokenizer(spec.source)
        _, self.raw_tokenizer = copy_tokenizer(self.tokenizer, spec.source)
        self._network = network
        self._scores = scores
        self._max_tokens = max_text_tokens(self.tokenizer, network.config, _reserved_positions(network.module))
        self.is_batched = self._batches_agree()

    def __call__(self, items: Sequence[TextItem]) -> list[Scored]:
        """Return the encoding and the scores of each text: (classes,), or (tokens, classes) for a token classifier.

        Raises:
            InferenceError: for an empty text, or one with more tokens than the model allows.
        """
        encoded = [self.raw_tokenizer.encode(item.text) for item in items]
        for encoding, item in zip(encoded, items, strict=True):
            if not encoding.ids:
                raise invalid("Expected a text, got an empty one", item.path)
            check_length(len(encoding.ids), self._max_tokens, item.path)
        by_index: dict[int, NDArray[np.float32]] = {}
        for batch in self._batches([len(encoding.ids) for encoding in encoded]):
            by_index.update(zip(batch, self._score([encoded[index] for index in batch]), strict=True))
        return [(encoding, by_index[index]) for index, encoding in enumerate(encoded)]

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield batches of text indices, with similar lengths together to reduce padding."""
        batch: list[int] = []
        for index in sorted(range(len(lengths)), key=lengths.__getitem__):
            full = len(batch) == _MAX_BATCH or (len(batch) + 1) * lengths[index] > _MAX_BATCH_TOKENS
            if batch and (full or not self.is_batched):
                yield batch
                batch = []
            batch.append(index)
        yield batch

    def _score(self, encoded: Sequence[Any]) -> list[NDArray[np.float32]]:
        ids, types = [encoding.ids for encoding in encoded], [encoding.type_ids for encoding in encoded]
        scores = self._scores(self._network(text_inputs(ids, self.tokenizer, types)).logits)
        return [row[: len(tokens)] if row.ndim > 1 else row for row, tokens in zip(scores, ids, strict=True)]

    def _batches_agree(self) -> bool:
        if self._network.dtype != framework().torch.float32:
            # 16-bit results depend on the shape of the batch, and five texts cannot prove the opposite.
            return False
        if self.tokenizer.pad_token_id is None or "attention_mask" not in self.tokenizer.model_input_names:
            return False
        encoded = [self.raw_tokenizer.encode(text) for text in _PROBES]
        encoded = [text for text in encoded if text.ids and len(text.ids) <= (self._max_tokens or len(text.ids))]
        try:
            together = self._score(encoded)
            alone = [self._score([text])[0] for text in encoded]
        except Exception:  # noqa: BLE001 - a request for a single text raises the error again
            return False
        return all(
            float(np.abs(single - batched).max()) <= TOLERANCE for single, batched in zip(alone, together, strict=True)
        )


def _reserved_positions(module: Any) -> int:
    """Return the number of positions that RoBERTa models reserve before a text, up to that of the padding token."""
    positions = getattr(getattr(module.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    return 0 if padding is None else padding + 1
