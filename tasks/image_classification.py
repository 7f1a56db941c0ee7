"""IMAGE_CLASSIFICATION: classify an image."""

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.error import invalid, quote_value
from tasks.inference.tensor import Datatype, Tensor, TensorSpec, stack_labelled, stack_numbers
from tasks.saliency.probe import probe_parameters
from tasks.task import Model, TaskType
from tasks.vision.filtering import SCORE_DECIMALS, SelectionParameters, select
from tasks.vision.image import Image
from tasks.vision.request import ImageItem, ImageTask


class LabelledScore(msgspec.Struct, frozen=True):
    """One class and its score, 0..1."""

    label: str
    score: float


class Classification(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The class scores of one image: `scores` (N,) float32, 0..1, of N `labels`.

    `class_ids` are the numbers of the classes; None for 0, 1, 2 ...
    """

    labels: Sequence[str]
    scores: NDArray[np.float32]
    class_ids: Sequence[int] | None = None

    def records(self) -> list[LabelledScore]:
        """Return one `LabelledScore` for each class, in the order of `labels`."""
        scores = self.scores.astype(np.float64).round(SCORE_DECIMALS).tolist()
        return [LabelledScore(label, score) for label, score in zip(self.labels, scores, strict=True)]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """Return `num_classes` INT32 [N], `class_ids` INT32 [N, K], `labels` BYTES [N, K], `scores` FP32 [N, K]."""
        class_ids = [
            np.array(range(len(prediction.labels)) if prediction.class_ids is None else prediction.class_ids)
            for prediction in predictions
        ]
        count, labels, scores = stack_labelled("num_classes", predictions)
        return count, stack_numbers("class_ids", class_ids, Datatype.INT32), labels, scores


ClassificationInput = ImageItem[SelectionParameters]
ImageClassifier = Model[ClassificationInput, Classification]


class ImageClassification(ImageTask[SelectionParameters, Classification]):
    """Return the classes of an image by descending score: the best for `predict`, all for `predict_proba` (default)."""

    task_type = TaskType.IMAGE_CLASSIFICATION
    parameters_type = SelectionParameters
    outputs = (
        TensorSpec(name="num_classes", datatype=Datatype.INT32, shape=(-1,)),
        TensorSpec(name="class_ids", datatype=Datatype.INT32, shape=(-1, -1)),
        TensorSpec(name="labels", datatype=Datatype.BYTES, shape=(-1, -1)),
        TensorSpec(name="scores", datatype=Datatype.FP32, shape=(-1, -1)),
    )

    def postprocess(self, item: ClassificationInput, prediction: Classification, /) -> Classification:
        return _select_classes(prediction, item.parameters)

    def targets(
        self, prediction: Classification, filtered: Classification, label: str | None, max_objects: int, /
    ) -> Classification:
        if label is None:
            return _select_classes(filtered, SelectionParameters(action="predict"))
        if label not in prediction.labels:
            raise invalid(f"The model has no class {quote_value(label)}", "label")
        return _select_classes(prediction, SelectionParameters(labels=(label,), top_k=max_objects))

    def similarity(self, targets: Classification, detected: Classification, _: Any, /) -> NDArray[np.float32]:
        # A class that is not among the detected ones has the score 0.
        scores = dict(zip(detected.labels, detected.scores.tolist(), strict=True))
        return np.array([scores.get(label, 0) for label in targets.labels], np.float32)

    def probe(self, item: ClassificationInput, image: Image, targets: Classification, /) -> ClassificationInput:
        return ClassificationInput(image, probe_parameters(item.parameters, targets, low_threshold=False))


def _select_classes(prediction: Classification, parameters: SelectionParameters) -> Classification:
    selected = select(prediction.scores, prediction.labels, parameters)
    if parameters.action == "predict":
        selected = selected[:1]
    return Classification(
        labels=list(map(prediction.labels.__getitem__, selected)),
        scores=prediction.scores[selected],
        class_ids=selected if prediction.class_ids is None else [prediction.class_ids[index] for index in selected],
    )
