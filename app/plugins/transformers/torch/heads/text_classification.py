"""Run classifiers of texts and of tokens, one text at a time: padding changes the scores of some architectures.

Hugging Face's pipeline merges tokens into entities.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.plugins.transformers.text.tokenizer import (
    check_length,
    copy_tokenizer,
    load_tokenizer,
    max_text_tokens,
    text_inputs,
)
from app.plugins.transformers.torch.architecture import ModelSpec
from app.plugins.transformers.torch.heads.classification import probabilities
from app.plugins.transformers.torch.network import Network
from tasks.image_classification import Classification
from tasks.inference.error import invalid
from tasks.text.request import TextItem
from tasks.text_classification import ClassifiedText, TextClassifier
from tasks.token_classification import Entities, TaggedText, TokenClassifier

Scored = tuple[Any, NDArray[np.float32]]
"""A text's encoding by the tokenizers package, and its scores."""

_OUTSIDE = "O"
"""The tag of tokens that belong to no entity."""


def load_text_classifier(spec: ModelSpec, network: Network) -> TextClassifier:
    """Return the classifier of `network`. Raise ModelError if it has no tokenizer."""
    texts = TextScorer(spec, network, lambda logits: probabilities(logits, network.config))

    def classify(inputs: Sequence[ClassifiedText], /) -> Sequence[Classification]:
        scored = texts([item.item for item in inputs])
        return [Classification(labels=spec.description.labels, scores=scores) for _, scores in scored]

    return classify


def load_token_classifier(spec: ModelSpec, network: Network) -> TokenClassifier:
    """Return the token classifier of `network`. Raise ModelError if it has no tokenizer."""
    texts = TextScorer(spec, network, lambda logits: logits.float().softmax(-1).cpu().numpy())
    tokenizer = texts.tokenizer
    # WordPiece vocabularies mark tokens that continue a word; for others only spaces separate words.
    marks = bool(getattr(texts.raw_tokenizer.model, "continuing_subword_prefix", None))
    network.config.id2label = dict(enumerate(spec.description.labels))
    pipelines: Any = importlib.import_module("transformers.pipelines.token_classification")

    # The pipeline converts some words twice, which breaks the accents of byte-level vocabularies: join spellings only.
    def join(words: Iterable[str]) -> list[str]:
        return list(chain.from_iterable(words))

    joiner = SimpleNamespace(convert_tokens_to_string=join)
    pipeline = pipelines.TokenClassificationPipeline(
        model=network.module, tokenizer=joiner, device=network.module.device
    )

    def tag_one(encoding: Any, scores: NDArray[np.float32], item: TaggedText) -> Entities:
        tokens = _tokens(encoding, scores, item.item.text, tokenizer.unk_token_id, marks=marks)
        strategy = pipelines.AggregationStrategy(item.parameters.aggregation_strategy)
        is_joined = strategy is not pipelines.AggregationStrategy.NONE
        label = "entity_group" if is_joined else "entity"
        found = [entity for entity in pipeline.aggregate(tokens, strategy) if entity[label] != _OUTSIDE]
        spellings = [entity["word"] for entity in found]
        return Entities(
            labels=[entity[label] for entity in found],
            scores=np.array([entity["score"] for entity in found], np.float32),
            words=[tokenizer.convert_tokens_to_string(word) if is_joined else word[0] for word in spellings],
            spans=np.array([(entity["start"], entity["end"]) for entity in found], np.int32).reshape(-1, 2),
        )

    def tag(inputs: Sequence[TaggedText], /) -> Sequence[Entities]:
        scored = texts([item.item for item in inputs])
        return [tag_one(encoding, scores, item) for (encoding, scores), item in zip(scored, inputs, strict=True)]

    return tag


def _tokens(
    encoded: Any, scores: NDArray[np.float32], text: str, unknown: int | None, *, marks: bool
) -> list[dict[str, Any]]:
    """Return the tokens of a text as the pipeline's ``gather_pre_entities``, with words as lists of spellings."""
    tokens: list[dict[str, Any]] = []
    for index, id_ in enumerate(encoded.ids):
        if encoded.special_tokens_mask[index]:
            continue
        start, end = encoded.offsets[index]
        word, original = encoded.tokens[index], text[start:end]
        continues = len(word) != len(original) if marks else start > 0 and " " not in text[start - 1 : start + 1]
        if id_ == unknown:
            word, continues = original, False
        token = {"word": [word], "scores": scores[index], "start": start, "end": end, "index": index}
        tokens.append({**token, "is_subword": continues})
    return tokens


class TextScorer:
    """Scores texts with a model. Several threads may call it.

    Raise ModelError if the model has no tokenizer.

    Args:
        scores: converts a batch of logits to scores.

    Attributes:
        tokenizer: transformers' tokenizer.
        raw_tokenizer: the underlying tokenizer, which has no state.
    """

    def __init__(self, spec: ModelSpec, network: Network, scores: Callable[[Any], NDArray[np.float32]]) -> None:
        self.tokenizer: Any = load_tokenizer(spec.source)
        _, self.raw_tokenizer = copy_tokenizer(self.tokenizer, spec.source)
        self._network = network
        self._scores = scores
        # RoBERTa models reserve positions before a text, up to the padding token's.
        embeddings = getattr(network.module.base_model, "embeddings", None)
        padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
        reserved = 0 if padding is None else padding + 1
        self._max_tokens = max_text_tokens(self.tokenizer, network.config, reserved)

    def __call__(self, items: Sequence[TextItem]) -> list[Scored]:
        """Return the encoding and the scores of each text: (classes,), or (tokens, classes) for a token classifier.

        Raise InferenceError for an empty text, or one with more tokens than the model allows.
        """
        encoded = [self.raw_tokenizer.encode(item.text) for item in items]
        for encoding, item in zip(encoded, items, strict=True):
            if not encoding.ids:
                raise invalid("Expected a text, got an empty one", item.path)
            check_length(len(encoding.ids), self._max_tokens, item.path)
        return [(encoding, self._score(encoding)) for encoding in encoded]

    def _score(self, encoding: Any) -> NDArray[np.float32]:
        inputs = text_inputs(encoding.ids, self.tokenizer, encoding.type_ids)
        return self._scores(self._network(inputs).logits)[0]
