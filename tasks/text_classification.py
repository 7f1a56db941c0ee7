"""TEXT_CLASSIFICATION: classify a whole text."""

from collections.abc import Mapping, Sequence

import msgspec

from tasks.image_classification import CLASSIFICATION_OUTPUTS, Classification, select_classes
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.task import InputGroup, Model, TaskType
from tasks.text.request import TEXT_INPUT, TextItem, text_groups
from tasks.vision.filtering import SelectionParameters, reject_candidate_labels

__all__ = ("ClassifiedText", "TextClassification", "TextClassifier")


class ClassifiedText(msgspec.Struct, frozen=True, eq=False):
    """A text and the parameters that select its classes."""

    item: TextItem
    parameters: SelectionParameters


TextClassifier = Model[ClassifiedText, Classification]


class TextClassification:
    """Return classes by descending score: the best one for the action `predict`, all for `predict_proba` (default)."""

    task_type = TaskType.TEXT_CLASSIFICATION
    parameters_type = SelectionParameters
    inputs = (TEXT_INPUT,)
    outputs = CLASSIFICATION_OUTPUTS

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[ClassifiedText]]:
        return text_groups(request, defaults, limits, SelectionParameters, ClassifiedText, reject_candidate_labels)

    def postprocess(self, item: ClassifiedText, prediction: Classification, /) -> Classification:
        return select_classes(prediction, item.parameters)
