"""Use a vision-language model that prints places as a detector or a segmenter of any classes."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from app.plugins.transformers.grounding.forms import Form
from app.plugins.transformers.text.generation import PromptedImageModel
from app.plugins.transformers.text.tokenizer import CANDIDATES_PATH
from metadata.model import Fact, Origin
from tasks.image_segmentation import ImageSegmentation, SegmentationParameters, SegmentedObject, Segments
from tasks.image_text_to_text import GenerationParameters, Grounding, ImageTextToText, LocatedObject, PromptedImage
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits, check_text, too_large
from tasks.inference.request import Positive
from tasks.object_detection import DetectedObject, DetectionParameters, Detections, ObjectDetection
from tasks.task import Model, Task, TaskType
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
        prompt: as of one that detects objects.
        max_new_tokens: maximum number of generated tokens in an answer.
    """

    prompt: str | None = None
    max_new_tokens: Positive = 512


Parameters = PromptedDetectionParameters | PromptedSegmentationParameters


class _PromptedTask:
    """The part of both tasks that checks questions."""

    def check_classes(self, parameters: Any, limits: Limits, path: str) -> None:
        """Reject a request without a question, with one too long, or with too many."""
        given: Parameters = parameters
        if given.prompt is None or given.candidate_labels is not None:
            check_candidate_labels(given, path)
        count = len(given.candidate_labels or ())
        if count > limits.max_prompts:
            raise too_large(limits.max_prompts, "questions (--max-prompts)", count, f"{path}.candidate_labels")
        if given.prompt is not None:
            check_text(given.prompt, limits, f"{path}.prompt", "prompt")
        if given.max_new_tokens > limits.max_new_tokens:
            message = f"Expected at most {limits.max_new_tokens} (--max-new-tokens), got {given.max_new_tokens}"
            raise InferenceError(ErrorKind.TOO_LARGE, message, f"{path}.max_new_tokens")


class PromptedDetection(_PromptedTask, ObjectDetection):
    """Object detection by a question."""

    parameters_type = PromptedDetectionParameters


class PromptedSegmentation(_PromptedTask, ImageSegmentation):
    """Image segmentation by a question."""

    parameters_type = PromptedSegmentationParameters


class _PlaceFinder:
    """Asks a model for the classes of a request. Each image is answered alone."""

    def __init__(self, model: PromptedImageModel, form: Form, question: str, kind: type[LocatedObject]) -> None:
        self._model = model
        self._form = form
        self._question = question
        self._kind = kind

    def find(self, item: ImageItem[Any]) -> list[tuple[str, Any]]:
        """Return the class and the object for each place of the right kind."""
        parameters: Parameters = item.parameters
        labels = parameters.candidate_labels or ()
        questions = dict(_questions(parameters.prompt or self._question, labels, self._form.separator))
        path = CANDIDATES_PATH if parameters.prompt is None else "parameters.prompt"
        generation = GenerationParameters(max_new_tokens=parameters.max_new_tokens)
        (answers,) = self._model([PromptedImage((item.image,), list(questions), generation, path)])
        found: list[tuple[str, Any]] = []
        for asked, grounding in zip(questions.values(), cast("Sequence[Grounding]", answers.grounding), strict=True):
            named = [(_class_of(place.label, asked, labels), place) for place in grounding.objects]
            kept = [(name, place) for name, place in named if name is not None and isinstance(place, self._kind)]
            found += kept
            dropped = len(named) - len(kept)
            notes = [grounding.note, f"{dropped} have another class or shape than requested" if dropped else ""]
            if any(notes):
                _logger.warning("places of an answer were left out: %s", "; ".join(filter(None, notes)))
        return found


class PromptedDetector(_PlaceFinder):
    """An `ObjectDetector`."""

    def __call__(self, inputs: Sequence[ImageItem[PromptedDetectionParameters]], /) -> list[Detections]:
        return [self._detections(self.find(item)) for item in inputs]

    def _detections(self, found: Sequence[tuple[str, DetectedObject | SegmentedObject]]) -> Detections:
        boxes = [_bounds(place) for _, place in found]
        return Detections(
            labels=[label for label, _ in found],
            scores=np.array([place.score for _, place in found], np.float32),
            boxes=np.array(boxes, np.float32).reshape(-1, 4),
        )


def _bounds(place: DetectedObject | SegmentedObject) -> tuple[float, ...]:
    """Return left, top, right and bottom in pixels."""
    if isinstance(place, DetectedObject):
        return place.xmin, place.ymin, place.xmax, place.ymax
    # Contours are counted from the centre of the first pixel, boxes from its corner.
    points = np.concatenate(place.rings(0, 0)) + 0.5
    return (*points.min(axis=0).tolist(), *points.max(axis=0).tolist())


class PromptedSegmenter(_PlaceFinder):
    """An `ImageSegmenter`."""

    def __call__(self, inputs: Sequence[ImageItem[PromptedSegmentationParameters]], /) -> list[Segments]:
        return [self._segments(self.find(item)) for item in inputs]

    def _segments(self, found: Sequence[tuple[str, SegmentedObject]]) -> Segments:
        return Segments(
            labels=[label for label, _ in found],
            scores=np.array([place.score for _, place in found], np.float32),
            contours=[[ring.astype(np.float32) for ring in place.rings(0, 0)] for _, place in found],
        )


def bind_task(
    model: PromptedImageModel, task_type: TaskType, facts: list[Fact]
) -> tuple[Task[Any, Any], Model[Any, Any]]:
    """Return the task of a vision-language model, and the model of that task. Add what a detector asks to `facts`."""
    form = model.form
    if form is None or task_type.geometry is None:
        return ImageTextToText(grounded=form is not None), model
    outlines = task_type is TaskType.IMAGE_SEGMENTATION
    question = form.outline_question if outlines else form.question
    facts.append(Fact("question", question, Origin.CONVENTION))
    if outlines:
        return PromptedSegmentation(open_vocabulary=True), PromptedSegmenter(model, form, question, SegmentedObject)
    kinds: Any = DetectedObject | SegmentedObject
    return PromptedDetection(open_vocabulary=True), PromptedDetector(model, form, question, kinds)


def _questions(template: str, labels: Sequence[str], separator: str) -> Iterator[tuple[str, str]]:
    """Yield each question, and the class that it is about; "" for all classes."""
    if _ONE not in template:
        yield template.replace(_ALL, separator.join(labels)), ""
    for label in labels if _ONE in template else ():
        yield template.replace(_ONE, label), label


def _class_of(printed: str, asked: str, labels: Sequence[str]) -> str | None:
    """Return the class of a printed label: one of the request's; None if the label is none of several."""
    by_name = {label.strip().casefold(): label for label in labels}
    if (name := by_name.get(printed.strip().casefold())) is not None:
        return name
    if not labels:
        return printed or _UNNAMED
    return asked or (labels[0] if len(labels) == 1 else None)
