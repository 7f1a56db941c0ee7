"""TEXT_CLASSIFICATION: classify a whole text."""

from collections.abc import Mapping, Sequence

from tasks.image_classification import Classification, ClassSelection
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.saliency.probe import probe_parameters
from tasks.task import InputGroup, Model, TaskType
from tasks.text.request import TEXT_INPUT, TextInput, text_groups
from tasks.vision.filtering import SelectionParameters, reject_candidate_labels

ClassifiedText = TextInput[SelectionParameters]
TextClassifier = Model[ClassifiedText, Classification]


class TextClassification(ClassSelection):
    """Return the classes of a text."""

    task_type = TaskType.TEXT_CLASSIFICATION
    inputs = (TEXT_INPUT,)

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[ClassifiedText]]:
        return text_groups(request, defaults, limits, SelectionParameters, reject_candidate_labels)

    def probe(self, item: ClassifiedText, text: str, targets: Classification, /) -> ClassifiedText:
        return item.with_text(text, probe_parameters(item.parameters, targets, low_threshold=False))
