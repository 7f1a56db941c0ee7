"""TEXT_CLASSIFICATION: classify a whole text."""

from tasks.image_classification import Classification, ClassSelection
from tasks.task import Model, TaskType
from tasks.text.request import LabelTask, TextInput
from tasks.vision.filtering import SelectionParameters

ClassifiedText = TextInput[SelectionParameters]
TextClassifier = Model[ClassifiedText, Classification]


class TextClassification(ClassSelection, LabelTask[SelectionParameters]):
    """Return the classes of a text."""

    task_type = TaskType.TEXT_CLASSIFICATION
