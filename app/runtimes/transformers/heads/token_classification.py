"""Run token classifiers, and merge tokens into entities.

The aggregation strategies are those of Hugging Face's token classification pipeline, with the same results.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.heads.text_scorer import TextScorer
from app.runtimes.transformers.network import Network
from tasks.token_classification import Aggregation, Entities, TaggedText, TokenClassifier

_OUTSIDE = "O"


class Token(msgspec.Struct, frozen=True, eq=False):
    """One token of a text.

    Attributes:
        spelling: its spelling in the vocabulary.
        start: start in the text, characters.
        end: end in the text, characters, exclusive.
        continues: whether it continues the word of the previous token.
        scores: (tags,) in 0..1.
    """

    spelling: str
    start: int
    end: int
    continues: bool
    scores: NDArray[np.float32]


class _TaggedSpan(msgspec.Struct, frozen=True):
    """Consecutive tokens with one tag."""

    tag: str
    score: float
    spellings: tuple[str, ...]
    start: int
    end: int


def load_token_classifier(spec: ModelSpec, network: Network) -> TokenClassifier:
    """Return the token classifier of `network`.

    Raises:
        ModelError: if it has no tokenizer.
    """
    texts = TextScorer(spec, network, lambda logits: logits.float().softmax(-1).cpu().numpy())
    tokenizer = texts.tokenizer
    # WordPiece vocabularies mark tokens that continue a word; for others only spaces separate words.
    marks = bool(getattr(texts.raw_tokenizer.model, "continuing_subword_prefix", None))

    def tag(inputs: Sequence[TaggedText], /) -> Sequence[Entities]:
        entities: list[Entities] = []
        for (encoding, scores), item in zip(texts([item.item for item in inputs]), inputs, strict=True):
            tokens = _tokens(encoding, scores, item.item.text, tokenizer.unk_token_id, marks=marks)
            spans = entities_of(tokens, spec.labels, item.parameters.aggregation_strategy)
            entities.append(_entities(spans, tokenizer, item.parameters.aggregation_strategy))
        return entities

    return tag


def entities_of(tokens: Sequence[Token], labels: Sequence[str], strategy: Aggregation) -> list[_TaggedSpan]:
    """Return the entities of one text by an aggregation strategy, without tokens outside any entity."""
    if strategy in ("none", "simple"):
        tagged = [_tag_word([token], labels, "first") for token in tokens]
    else:
        words: list[list[Token]] = []
        for token in tokens:
            if words and token.continues:
                words[-1].append(token)
            else:
                words.append([token])
        tagged = [_tag_word(word, labels, strategy) for word in words]
    if strategy != "none":
        tagged = _group(tagged)
    return [entity for entity in tagged if entity.tag != _OUTSIDE]


def _tag_word(word: Sequence[Token], labels: Sequence[str], strategy: Aggregation) -> _TaggedSpan:
    """Choose one tag for the tokens of a word."""
    match strategy:
        case "average":
            scores = np.mean([token.scores for token in word], axis=0)
        case "max":
            scores = max(word, key=lambda token: float(token.scores.max())).scores
        case _:
            scores = word[0].scores
    best = int(scores.argmax())
    spellings = tuple(token.spelling for token in word)
    return _TaggedSpan(labels[best], float(scores[best]), spellings, word[0].start, word[-1].end)


def _group(tagged: Sequence[_TaggedSpan]) -> list[_TaggedSpan]:
    """Join neighbours with the same tag, unless the later one begins an entity (``B-``)."""
    groups: list[list[_TaggedSpan]] = []
    for word in tagged:
        if groups and _name(groups[-1][-1].tag) == _name(word.tag) and not word.tag.startswith("B-"):
            groups[-1].append(word)
        else:
            groups.append([word])
    return [
        _TaggedSpan(
            group[0].tag.split("-", 1)[-1],
            float(np.mean([word.score for word in group])),
            tuple(spelling for word in group for spelling in word.spellings),
            group[0].start,
            group[-1].end,
        )
        for group in groups
    ]


def _name(tag: str) -> str:
    return tag[2:] if tag.startswith(("B-", "I-")) else tag


def _tokens(encoded: Any, scores: NDArray[np.float32], text: str, unknown: int | None, *, marks: bool) -> list[Token]:
    tokens: list[Token] = []
    for index, id_ in enumerate(encoded.ids):
        if encoded.special_tokens_mask[index]:
            continue
        start, end = encoded.offsets[index]
        spelling = encoded.tokens[index]
        original = text[start:end]
        continues = len(spelling) != len(original) if marks else start > 0 and " " not in text[start - 1 : start + 1]
        if id_ == unknown:
            spelling, continues = original, False
        tokens.append(Token(spelling, start, end, continues, scores[index]))
    return tokens


def _entities(spans: Sequence[_TaggedSpan], tokenizer: Any, strategy: Aggregation) -> Entities:
    words = [
        entity.spellings[0] if strategy == "none" else tokenizer.convert_tokens_to_string(list(entity.spellings))
        for entity in spans
    ]
    return Entities(
        labels=[entity.tag for entity in spans],
        scores=np.array([entity.score for entity in spans], np.float32),
        words=words,
        spans=np.array([(entity.start, entity.end) for entity in spans], np.int32).reshape(-1, 2),
    )
