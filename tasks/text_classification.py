"""TEXT_CLASSIFICATION: classify a whole text."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.image_classification import (
    CLASSIFICATION_OUTPUTS,
    Classification,
    class_similarity,
    class_targets,
    select_classes,
)
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.saliency.probe import probe_parameters
from tasks.saliency.words import Span
from tasks.task import InputGroup, Model, TaskType
from tasks.text.request import TEXT_INPUT, TextInput, text_groups
from tasks.vision.filtering import SelectionParameters, reject_candidate_labels

ClassifiedText = TextInput[SelectionParameters]
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
        return text_groups(request, defaults, limits, SelectionParameters, reject_candidate_labels)

    def postprocess(self, item: ClassifiedText, prediction: Classification, /) -> Classification:
        return select_classes(prediction, item.parameters)

    def targets(
        self, prediction: Classification, filtered: Classification, label: str | None, max_objects: int, /
    ) -> Classification:
        return class_targets(prediction, filtered, label, max_objects)

    def probe(self, item: ClassifiedText, text: str, targets: Classification, /) -> ClassifiedText:
        return item.with_text(text, probe_parameters(item.parameters, targets, low_threshold=False))

    def similarity(self, targets: Classification, detected: Classification, _: Span, /) -> NDArray[np.float32]:
        return class_similarity(targets, detected)
