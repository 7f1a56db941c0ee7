"""Use a vision-language model that prints places as a detector or a segmenter of any classes."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from app.plugins.transformers.grounding.forms import Form
from app.plugins.transformers.text.tokenizer import CANDIDATES_PATH
from metadata.model import Fact, Origin
from tasks.image_segmentation import ImageSegmentation, SegmentationParameters, SegmentedObject, Segments
from tasks.image_text_to_text import (
    GenerationParameters,
    Grounding,
    ImageTextToText,
    PromptedImage,
    VisionLanguageModel,
)
from tasks.inference.limits import Limits, check_text
from tasks.inference.request import Positive
from tasks.object_detection import DetectedObject, DetectionParameters, Detections, ObjectDetection
from tasks.task import Model, Task, TaskType
from tasks.text.generation import check_sampling
from tasks.vision.filtering import check_candidate_labels
from tasks.vision.request import ImageItem

_logger = logging.getLogger(__name__)
_ALL, _ONE = "{labels}", "{label}"
_UNNAMED = "object"
"""The label of an object that has none, if the question names no class."""


class PromptedDetectionParameters(DetectionParameters, frozen=True, kw_only=True):
    """Parameters of a vision-language model that detects objects.

    Attributes:
        prompt: the question, instead of the model's usual one. {labels} in it stands for all candidate_labels; with
            {label}, the model is asked for one after the other.
        max_new_tokens: maximum number of generated tokens in an answer.
    """

    prompt: str | None = None
    max_new_tokens: Positive = 512


class PromptedSegmentationParameters(SegmentationParameters, frozen=True, kw_only=True):
    """Parameters of a vision-language model that outlines objects.

    Attributes:
        prompt: as of a model that detects objects.
        max_new_tokens: maximum number of generated tokens in an answer.
    """

    prompt: str | None = None
    max_new_tokens: Positive = 512


_Parameters = PromptedDetectionParameters | PromptedSegmentationParameters


class _PromptedTask:
    """The part of both tasks that checks questions."""

    def check_classes(self, parameters: Any, limits: Limits, path: str) -> None:
        """Reject a request without a question, or with one that is too long."""
        labels, prompt = parameters.candidate_labels, parameters.prompt
        if prompt is None or labels is not None:
            check_candidate_labels(parameters, path)
        check_text(prompt or "", limits, f"{path}.prompt", "prompt")
        check_sampling(_generation(parameters), limits, path)


class PromptedDetection(_PromptedTask, ObjectDetection):
    """Object detection by a question."""

    parameters_type = PromptedDetectionParameters


class PromptedSegmentation(_PromptedTask, ImageSegmentation):
    """Image segmentation by a question."""

    parameters_type = PromptedSegmentationParameters


class PromptedModel:
    """An `ObjectDetector` or an `ImageSegmenter` that asks a model for the classes of each image.

    Args:
        model: the model that answers.
        form: how it prints places.
        outlines: whether to return outlines instead of boxes.
    """

    def __init__(self, model: VisionLanguageModel, form: Form, *, outlines: bool) -> None:
        self._model = model
        self._form = form
        self._kinds = (SegmentedObject,) if outlines else (DetectedObject, SegmentedObject)
        self.question = form.outline_question if outlines else form.question

    def __call__(self, inputs: Sequence[ImageItem[_Parameters]], /) -> list[Detections | Segments]:
        return [self._predict(item) for item in inputs]

    def _predict(self, item: ImageItem[_Parameters]) -> Detections | Segments:
        found = list(self._find(item))
        labels, scores = [label for label, _ in found], np.array([place.score for _, place in found], np.float32)
        if DetectedObject in self._kinds:
            boxes = np.array([_bounds(place) for _, place in found], np.float32).reshape(-1, 4)
            return Detections(labels=labels, scores=scores, boxes=boxes)
        contours = [[ring.astype(np.float32) for ring in place.rings(0, 0)] for _, place in found]
        return Segments(labels=labels, scores=scores, contours=contours)

    def _find(self, item: ImageItem[_Parameters]) -> Iterator[tuple[str, DetectedObject | SegmentedObject]]:
        """Yield each object of a right class and kind."""
        parameters, labels = item.parameters, item.parameters.candidate_labels or ()
        questions = _questions(parameters.prompt or self.question, labels, self._form.separator)
        path = CANDIDATES_PATH if parameters.prompt is None else "parameters.prompt"
        (answers,) = self._model([PromptedImage((item.image,), list(questions), _generation(parameters), path)])
        for asked, grounding in zip(
            questions.values(), cast("Sequence[Grounding | None]", answers.grounding), strict=True
        ):
            if grounding is None:
                continue
            if grounding.note:
                _logger.warning("places of an answer were left out: %s", grounding.note)
            for place in grounding.objects:
                label = _class_of(place.label, asked, labels)
                if label is not None and isinstance(place, self._kinds):
                    yield label, place
                else:
                    _logger.warning("a place of an answer was left out: another class or shape than requested")


def _bounds(place: DetectedObject | SegmentedObject) -> tuple[float, ...]:
    """Return left, top, right and bottom in pixels."""
    if isinstance(place, DetectedObject):
        return place.xmin, place.ymin, place.xmax, place.ymax
    # Contours are counted from the centre of the first pixel, boxes from its corner.
    points = np.concatenate(place.rings(0, 0)) + 0.5
    return (*points.min(axis=0).tolist(), *points.max(axis=0).tolist())


def _generation(parameters: _Parameters) -> GenerationParameters:
    return GenerationParameters(max_new_tokens=parameters.max_new_tokens)


def bind_task(
    model: VisionLanguageModel, form: Form | None, task_type: TaskType, facts: list[Fact]
) -> tuple[Task[Any, Any], Model[Any, Any]]:
    """Return the task of a vision-language model, and the model of that task. Add what a detector asks to `facts`."""
    if form is None or task_type.geometry is None:
        return ImageTextToText(grounded=form is not None), model
    outlines = task_type is TaskType.IMAGE_SEGMENTATION
    prompted = PromptedModel(model, form, outlines=outlines)
    facts.append(Fact("question", prompted.question, Origin.CONVENTION))
    return (PromptedSegmentation if outlines else PromptedDetection)(open_vocabulary=True), prompted


def _questions(template: str, labels: Sequence[str], separator: str) -> dict[str, str]:
    """Return the class by each question; "" for a question about all classes."""
    if _ONE in template:
        return {template.replace(_ONE, label): label for label in labels}
    return {template.replace(_ALL, separator.join(labels)): ""}


def _class_of(printed: str, asked: str, labels: Sequence[str]) -> str | None:
    """Return the class of a printed label: one of the request's; None if the label is none of several."""
    by_name = {label.strip().casefold(): label for label in labels}
    if (name := by_name.get(printed.strip().casefold())) is not None:
        return name
    if not labels:
        return printed or _UNNAMED
    return asked or (labels[0] if len(labels) == 1 else None)
