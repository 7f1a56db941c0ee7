"""TOKEN_CLASSIFICATION: which parts of a text name something, and what."""

from collections.abc import Mapping, Sequence
from typing import Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.stacking import counts, stacked_numbers, stacked_text
from tasks.exchange.tensor import Datatype, Tensor, TensorSpec
from tasks.task import InputGroup, Model, TaskType
from tasks.text.request import TEXT_INPUT, TextItem, text_groups
from tasks.vision.selection import SCORE_DECIMALS, SelectionParameters, check_own_classes, select

__all__ = (
    "Aggregation",
    "Entities",
    "Entity",
    "TaggedText",
    "TokenClassification",
    "TokenClassifier",
    "TokenParameters",
)

Aggregation = Literal["none", "simple", "first", "average", "max"]


class TokenParameters(SelectionParameters, frozen=True, kw_only=True):
    """What a tagger may be asked.

    Attributes:
        aggregation_strategy: how tokens become entities, as in Hugging Face's pipeline: `none` gives one entity for
            each token; `simple` joins neighbours of one tag; the others first settle on one tag for each word, by its
            first token, by the average of its tokens, or by the surest of them.
    """

    aggregation_strategy: Aggregation = "simple"


class Entity(msgspec.Struct, frozen=True):
    """One part of a text: the field names are those of Hugging Face's pipeline; `start` and `end` count characters."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class Entities(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The entities of one text.

    Attributes:
        labels: N tags, without ``B-`` and ``I-`` where tokens were joined.
        scores: (N,) float32, 0..1.
        words: what was found, as the tokenizer spells it.
        spans: (N, 2) int32, where each begins in the text and where it has ended, in characters.
    """

    labels: Sequence[str]
    scores: NDArray[np.float32]
    words: Sequence[str]
    spans: NDArray[np.int32]

    def records(self) -> list[Entity]:
        """One `Entity` for each, in their order."""
        scores = np.round(self.scores.astype(np.float64), SCORE_DECIMALS).tolist()
        return [
            Entity(label, score, word, start, end)
            for label, score, word, (start, end) in zip(
                self.labels, scores, self.words, self.spans.tolist(), strict=True
            )
        ]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """`num_entities` INT32 [N]; `labels`, `words` BYTES, `scores` FP32 [N, M]; `spans` INT32 [N, M, 2]."""
        return (
            counts("num_entities", [each.labels for each in predictions]),
            stacked_text("labels", [each.labels for each in predictions]),
            stacked_numbers("scores", [each.scores for each in predictions]),
            stacked_text("words", [each.words for each in predictions]),
            stacked_numbers("spans", [each.spans for each in predictions], Datatype.INT32),
        )


class TaggedText(msgspec.Struct, frozen=True, eq=False):
    """A text and which of its entities are wanted."""

    item: TextItem
    parameters: TokenParameters


TokenClassifier = Model[TaggedText, Entities]


class TokenClassification:
    """Entities in the order of the text; `top_k` keeps the surest ones."""

    task_type = TaskType.TOKEN_CLASSIFICATION
    parameters_type = TokenParameters
    inputs = (TEXT_INPUT,)
    outputs = (
        TensorSpec(name="num_entities", datatype=Datatype.INT32, shape=(-1,)),
        TensorSpec(name="labels", datatype=Datatype.BYTES, shape=(-1, -1)),
        TensorSpec(name="scores", datatype=Datatype.FP32, shape=(-1, -1)),
        TensorSpec(name="words", datatype=Datatype.BYTES, shape=(-1, -1)),
        TensorSpec(name="spans", datatype=Datatype.INT32, shape=(-1, -1, 2)),
    )

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[TaggedText]]:
        return text_groups(request, defaults, limits, TokenParameters, TaggedText, check_own_classes)

    def refine(self, item: TaggedText, prediction: Entities, /) -> Entities:
        chosen = sorted(select(prediction.scores, prediction.labels, item.parameters))
        return Entities(
            labels=[prediction.labels[index] for index in chosen],
            scores=prediction.scores[chosen],
            words=[prediction.words[index] for index in chosen],
            spans=prediction.spans[chosen],
        )
