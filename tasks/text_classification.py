"""TEXT_CLASSIFICATION: classify a whole text."""

from collections.abc import Mapping, Sequence

import msgspec

from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.image_classification import CLASSIFICATION_OUTPUTS, Classification, narrowed
from tasks.task import InputGroup, Model, TaskType
from tasks.text.request import TEXT_INPUT, TextItem, text_groups
from tasks.vision.selection import SelectionParameters, check_own_classes

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
        return text_groups(request, defaults, limits, SelectionParameters, ClassifiedText, check_own_classes)

    def refine(self, item: ClassifiedText, prediction: Classification, /) -> Classification:
        return narrowed(prediction, item.parameters)
