"""TOKEN_CLASSIFICATION: find the named entities of a text."""

from collections.abc import Sequence
from typing import Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.tensor import Datatype, Tensor, TensorSpec, stack_labelled, stack_numbers, stack_text
from tasks.saliency.probe import take
from tasks.task import Model, TaskType
from tasks.text.request import LabelTask, TextInput
from tasks.vision.filtering import SCORE_DECIMALS, SelectionParameters, select

Aggregation = Literal["none", "simple", "first", "average", "max"]


class TokenParameters(SelectionParameters, frozen=True, kw_only=True):
    """Parameters of token classification.

    Attributes:
        aggregation_strategy: how tokens become entities, as in Hugging Face's pipeline. `none` returns one entity for
            each token; `simple` joins adjacent tokens with the same tag. The others first choose one tag for each word:
            that of its first token, of the average of its tokens, or of its token with the highest score.
    """

    aggregation_strategy: Aggregation = "simple"


class Entity(msgspec.Struct, frozen=True):
    """One entity, with the field names of Hugging Face's pipeline; `start` and `end` are character offsets."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class Entities(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The entities of one text: N tags, without ``B-`` and ``I-`` if tokens were joined, and their `scores`, 0..1.

    `words` have the tokenizer's spelling. `spans` (N, 2) int32 are the start and end of each entity, as character
    offsets.
    """

    labels: Sequence[str]
    scores: NDArray[np.float32]
    words: Sequence[str]
    spans: NDArray[np.int32]

    def records(self) -> list[Entity]:
        """Return one `Entity` for each entity, in order."""
        scores = np.round(self.scores.astype(np.float64), SCORE_DECIMALS).tolist()
        return [
            Entity(label, score, word, *span)
            for label, score, word, span in zip(self.labels, scores, self.words, self.spans.tolist(), strict=True)
        ]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """Return `num_entities` INT32 [N]; `labels`, `words` BYTES, `scores` FP32 [N, M]; `spans` INT32 [N, M, 2]."""
        return (
            *stack_labelled("num_entities", predictions),
            stack_text("words", [prediction.words for prediction in predictions]),
            stack_numbers("spans", [prediction.spans for prediction in predictions], Datatype.INT32),
        )


TaggedText = TextInput[TokenParameters]
TokenClassifier = Model[TaggedText, Entities]


class TokenClassification(LabelTask[TokenParameters]):
    """Return entities in the order of the text; `top_k` selects those with the highest scores."""

    task_type = TaskType.TOKEN_CLASSIFICATION
    parameters_type = TokenParameters
    outputs = (
        TensorSpec(name="num_entities", datatype=Datatype.INT32, shape=(-1,)),
        TensorSpec(name="labels", datatype=Datatype.BYTES, shape=(-1, -1)),
        TensorSpec(name="scores", datatype=Datatype.FP32, shape=(-1, -1)),
        TensorSpec(name="words", datatype=Datatype.BYTES, shape=(-1, -1)),
        TensorSpec(name="spans", datatype=Datatype.INT32, shape=(-1, -1, 2)),
    )

    def postprocess(self, item: TaggedText, prediction: Entities, /) -> Entities:
        return take(prediction, sorted(select(prediction.scores, prediction.labels, item.parameters)))
