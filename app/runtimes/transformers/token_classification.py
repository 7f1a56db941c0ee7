"""Taggers of tokens, and how tokens become entities.

The strategies are those of Hugging Face's token classification pipeline, with the same results.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.scored_texts import ScoredTexts
from tasks.token_classification import Aggregation, Entities, TaggedText, TokenClassifier

__all__ = ("Token", "entities_of", "load_token_classifier")

_OUTSIDE = "O"


class Token(msgspec.Struct, frozen=True, eq=False):
    """One token of a text.

    Attributes:
        spelled: as its vocabulary has it.
        start: where it begins in the text, in characters.
        end: where it has ended.
        continues: whether it goes on with the word of the token before it.
        scores: (tags,) 0..1.
    """

    spelled: str
    start: int
    end: int
    continues: bool
    scores: NDArray[np.float32]


class _Tagged(msgspec.Struct, frozen=True):
    """Tokens that have one tag."""

    tag: str
    score: float
    spelled: tuple[str, ...]
    start: int
    end: int


def load_token_classifier(understood: Understood, network: Network) -> TokenClassifier:
    """The tagger of `network`.

    Raises:
        ModelError: when it has no tokenizer.
    """
    texts = ScoredTexts(understood, network, lambda logits: logits.float().softmax(-1).cpu().numpy())
    tokenizer = texts.tokenizer
    # A vocabulary that marks what continues a word, as WordPiece does, tells words; others only show spaces.
    marks = bool(getattr(texts.bare.model, "continuing_subword_prefix", None))

    def tag(inputs: Sequence[TaggedText], /) -> Sequence[Entities]:
        found: list[Entities] = []
        for (each, scores), item in zip(texts([each.item for each in inputs]), inputs, strict=True):
            tokens = _tokens(each, scores, item.item.text, tokenizer.unk_token_id, marks=marks)
            joined = entities_of(tokens, understood.labels, item.parameters.aggregation_strategy)
            found.append(_entities(joined, tokenizer, item.parameters.aggregation_strategy))
        return found

    return tag


def entities_of(tokens: Sequence[Token], labels: Sequence[str], strategy: Aggregation) -> list[_Tagged]:
    """The entities of one text by a strategy of the pipeline, without those outside of any."""
    if strategy in ("none", "simple"):
        tagged = [_settled([each], labels, "first") for each in tokens]
    else:
        words: list[list[Token]] = []
        for each in tokens:
            if words and each.continues:
                words[-1].append(each)
            else:
                words.append([each])
        tagged = [_settled(word, labels, strategy) for word in words]
    if strategy != "none":
        tagged = _grouped(tagged)
    return [each for each in tagged if each.tag != _OUTSIDE]


def _settled(word: Sequence[Token], labels: Sequence[str], strategy: Aggregation) -> _Tagged:
    """One tag for the tokens of a word."""
    match strategy:
        case "average":
            scores = np.mean([each.scores for each in word], axis=0)
        case "max":
            scores = max(word, key=lambda each: float(each.scores.max())).scores
        case _:
            scores = word[0].scores
    best = int(scores.argmax())
    spelled = tuple(each.spelled for each in word)
    return _Tagged(labels[best], float(scores[best]), spelled, word[0].start, word[-1].end)


def _grouped(tagged: Sequence[_Tagged]) -> list[_Tagged]:
    """Neighbours of one tag joined, unless the later one begins an entity (``B-``)."""
    groups: list[list[_Tagged]] = []
    for each in tagged:
        if groups and _name(groups[-1][-1].tag) == _name(each.tag) and not each.tag.startswith("B-"):
            groups[-1].append(each)
        else:
            groups.append([each])
    return [
        _Tagged(
            group[0].tag.split("-", 1)[-1],
            float(np.mean([each.score for each in group])),
            tuple(spelled for each in group for spelled in each.spelled),
            group[0].start,
            group[-1].end,
        )
        for group in groups
    ]


def _name(tag: str) -> str:
    return tag[2:] if tag.startswith(("B-", "I-")) else tag


def _tokens(encoded: Any, scores: NDArray[np.float32], text: str, unknown: int | None, *, marks: bool) -> list[Token]:
    found: list[Token] = []
    for place, id_ in enumerate(encoded.ids):
        if encoded.special_tokens_mask[place]:
            continue
        start, end = encoded.offsets[place]
        spelled = encoded.tokens[place]
        shown = text[start:end]
        continues = len(spelled) != len(shown) if marks else start > 0 and " " not in text[start - 1 : start + 1]
        if id_ == unknown:
            spelled, continues = shown, False
        found.append(Token(spelled, start, end, continues, scores[place]))
    return found


def _entities(found: Sequence[_Tagged], tokenizer: Any, strategy: Aggregation) -> Entities:
    words = [
        each.spelled[0] if strategy == "none" else tokenizer.convert_tokens_to_string(list(each.spelled))
        for each in found
    ]
    return Entities(
        labels=[each.tag for each in found],
        scores=np.array([each.score for each in found], np.float32),
        words=words,
        spans=np.array([(each.start, each.end) for each in found], np.int32).reshape(-1, 2),
    )
