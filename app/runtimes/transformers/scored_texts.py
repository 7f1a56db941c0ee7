"""Texts to the scores of classes, together where that gives each text the same answer.

Shorter texts are padded to the longest beside them, and hidden from the model by its attention mask. Not every
architecture is indifferent to that, so it is tried each time a model is loaded; one that is not answers one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.tokenizing import (
    check_length,
    load_tokenizer,
    most_tokens,
    own_tokenizer,
    text_inputs,
)
from tasks.exchange.error import invalid
from tasks.text.request import TextItem

__all__ = ("TOLERANCE", "ScoredTexts")

TOLERANCE = 1e-5
"""The most that a score may differ for the texts beside it."""

_MOST_TOGETHER = 32
_MOST_TOKENS = 4096
"""Of one call of the model, padding included."""

_SENTENCE = "What is in the picture, and who lives in Paris? "
_PROBES = ("a", "Hello, world.", _SENTENCE, _SENTENCE * 3, "Hello, world. " * 20)

Scored = tuple[Any, NDArray[np.float32]]
"""A text's encoding by the tokenizers package, and its scores."""


class ScoredTexts:
    """A model of texts, called from several threads at once.

    Args:
        understood: the model, and where it lies.
        network: its weights.
        scores: makes scores of a batch of its logits.

    Attributes:
        tokenizer: transformers' own.
        bare: the one behind it, which has no state.
        together: whether texts go through the model together.

    Raises:
        ModelError: when it has no tokenizer.
    """

    def __init__(self, understood: Understood, network: Network, scores: Callable[[Any], NDArray[np.float32]]) -> None:
        self.tokenizer: Any = load_tokenizer(understood.source)
        _, self.bare = own_tokenizer(self.tokenizer, understood.source)
        self._network = network
        self._scores = scores
        self._most = most_tokens(self.tokenizer, network.config, _places_taken(network.module))
        self.together = self._agrees()

    def __call__(self, items: Sequence[TextItem]) -> list[Scored]:
        """For each text its encoding, and its scores: (classes,), or (tokens, classes) of a model of tokens.

        Raises:
            InferenceError: for a text of more tokens than the model has places for, or of none.
        """
        encoded = [self.bare.encode(item.text) for item in items]
        for each, item in zip(encoded, items, strict=True):
            if not each.ids:
                raise invalid("Expected a text, got an empty one", item.path)
            check_length(len(each.ids), self._most, item.path)
        found: dict[int, NDArray[np.float32]] = {}
        for batch in self._batches([len(each.ids) for each in encoded]):
            found.update(zip(batch, self._answers([encoded[index] for index in batch]), strict=True))
        return [(each, found[index]) for index, each in enumerate(encoded)]

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Places of texts that go through the model together: those of like lengths, so that little is padded."""
        batch: list[int] = []
        for index in sorted(range(len(lengths)), key=lengths.__getitem__):
            full = len(batch) == _MOST_TOGETHER or (len(batch) + 1) * lengths[index] > _MOST_TOKENS
            if batch and (full or not self.together):
                yield batch
                batch = []
            batch.append(index)
        yield batch

    def _answers(self, encoded: Sequence[Any]) -> list[NDArray[np.float32]]:
        inputs = text_inputs([each.ids for each in encoded], self.tokenizer, [each.type_ids for each in encoded])
        scores = self._scores(self._network(inputs).logits)
        return [row[: len(each.ids)] if row.ndim > 1 else row for row, each in zip(scores, encoded, strict=True)]

    def _agrees(self) -> bool:
        if self._network.dtype != framework().torch.float32:
            # Numbers of 16 bits depend on the shape of the batch, and five texts cannot show that they never do.
            return False
        if self.tokenizer.pad_token_id is None or "attention_mask" not in self.tokenizer.model_input_names:
            return False
        encoded = [self.bare.encode(text) for text in _PROBES]
        encoded = [each for each in encoded if each.ids and len(each.ids) <= (self._most or len(each.ids))]
        try:
            together = self._answers(encoded)
            alone = [self._answers([each])[0] for each in encoded]
        except Exception:  # noqa: BLE001 - whatever it is, it is raised again when a text is answered alone
            return False
        return all(float(np.abs(one - other).max()) <= TOLERANCE for one, other in zip(alone, together, strict=True))


def _places_taken(module: Any) -> int:
    """How many places RoBERTa and its kin leave empty before a text: that of the padding, and those before it."""
    positions = getattr(getattr(module.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    return 0 if padding is None else padding + 1
