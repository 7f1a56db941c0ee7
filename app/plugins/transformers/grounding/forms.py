"""The forms of printed places by name, their scales, and the questions to which models print them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.settings.model import ModelError, ModelSource
from app.plugins.transformers.grounding.printed_places import (
    Place,
    Places,
    read_deepseek_tags,
    read_florence_locations,
    read_json_places,
    read_paligemma_locations,
    read_qwen_tags,
)
from metadata.model import Fact, Origin
from tasks.image_segmentation import Point, SegmentedObject
from tasks.image_text_to_text import Grounding, LocatedObject, LocatedPoint
from tasks.object_detection import PIXEL_DECIMALS, DetectedObject
from tasks.task import TaskType
from tasks.vision.filtering import SCORE_DECIMALS

_TOLERANCE = 0.01
"""How far a place may reach over the border, as a fraction of the side. Other numbers have another scale."""


class VisionLanguageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the answers of a vision-language model are read, and when it is loaded.

    Attributes:
        grounding: the form in which its answers print boxes, points and polygons, or `none`; by default the
            architecture determines it.
        load_at_first_use: whether the first request loads a model of ONNX graphs, instead of the start of the server.
            The server then starts sooner, and only requests report a model that cannot be loaded.
    """

    grounding: (
        Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "florence2", "paligemma", "deepseek_vl2", "none"] | None
    ) = None
    load_at_first_use: bool = False


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How a family of models prints places.

    Attributes:
        read: return the places in a text with its special tokens; the second argument is the question.
        scale: the number at the right and at the bottom side of the image; None for the model's input in pixels.
        offset: added to each number: the centre of a cell.
        question: what a detector asks; ``{labels}`` stands for all classes, ``{label}`` for one class of a question.
        separator: separates the classes in ``{labels}``.
        outline_question: what a segmenter asks; "" if the family prints no polygons.
    """

    read: Callable[[str, str], Places]
    scale: float | None
    offset: float = 0
    question: str
    separator: str = ", "
    outline_question: str = ""


FORMS: Mapping[str, Form] = {
    "qwen2_vl": Form(read=read_qwen_tags, scale=1000, question="Detect the bounding box of {label}"),
    "qwen2_5_vl": Form(
        read=read_json_places,
        scale=None,
        question="Outline the position of each {labels} and output all the coordinates in JSON format.",
    ),
    "qwen3_vl": Form(
        read=read_json_places,
        scale=1000,
        question='Locate every instance that belongs to the following categories: "{labels}". '
        "Report bbox coordinates in JSON format.",
    ),
    "florence2": Form(
        read=read_florence_locations,
        scale=1000,
        offset=0.5,
        question="<OPEN_VOCABULARY_DETECTION>{label}",
        outline_question="<REFERRING_EXPRESSION_SEGMENTATION>{label}",
    ),
    "paligemma": Form(read=read_paligemma_locations, scale=1024, question="detect {labels}", separator=" ; "),
    "deepseek_vl2": Form(read=read_deepseek_tags, scale=999, question="Locate {label} in the given image."),
}
_ARCHITECTURES = {**{name: name for name in FORMS if name != "deepseek_vl2"}, "qwen3_vl_moe": "qwen3_vl"}
"""The form of each model type of transformers, which lacks DeepSeek-VL2."""


def form_of(source: ModelSource, model_type: str, facts: list[Fact]) -> Form | None:
    """Return the form of a vision-language model, and add it to `facts`; None if it prints no places.

    Raise ModelError for a declared task that needs another form.
    """
    declared, task_type = source.settings.of(VisionLanguageSettings).grounding, source.settings.task_type
    name = declared or _ARCHITECTURES.get(model_type, "none")
    form = FORMS.get(name)
    finds_objects = task_type is not None and task_type.geometry is not None
    if finds_objects and form is None:
        known = ", ".join(FORMS)
        reason = f"{source.folder} prints no boxes that are known, which {task_type} needs"
        raise ModelError(f'{reason}; declare "grounding", the form of its boxes: one of {known}')
    if form is not None and task_type is TaskType.IMAGE_SEGMENTATION and not form.outline_question:
        raise ModelError(f"{source.folder} prints boxes, not outlines: declare the task OBJECT_DETECTION")
    if form is not None:
        facts.append(Fact("grounding", name, Origin.DECLARED if declared else Origin.CONFIG))
    return form


def read_grounding(
    form: Form,
    text: str,
    prompt: str,
    size: tuple[int, int] | None,
    input_size: tuple[int, int] | None,
    score: float,
) -> Grounding:
    """Return the objects that `text` prints, in pixels of the upright image.

    Args:
        form: how the model prints them.
        text: the answer with its special tokens.
        prompt: the question.
        size: (width, height) of the image, pixels; None for several images or none, whose places are not read.
        input_size: the same of the model's input; None if it is not known.
        score: score of each object.
    """
    scales = input_size if form.scale is None else (form.scale, form.scale)
    places = list(form.read(text, prompt))
    found: list[LocatedObject] = []
    for place in filter(None, places) if size and scales else ():
        rings = [(np.array(ring, np.float64) + form.offset) / np.array(scales) for ring in place.rings]
        if all(np.all((ring >= -_TOLERANCE) & (ring <= 1 + _TOLERANCE)) for ring in rings):
            pixels = [np.clip(ring, 0, 1) * np.array(size) for ring in rings]
            found += _located(place, pixels, round(score, SCORE_DECIMALS))
    unread = len(places) - len(found)
    return Grounding(found, f"{unread} printed place{'s' * (unread > 1)} could not be read" if unread else "")


def _located(place: Place, pixels: Sequence[NDArray[np.float64]], score: float) -> list[LocatedObject]:
    """Return the object of a place whose rings are (N, 2) pixels; none for a box without an area."""
    rings: list[list[list[float]]] = [ring.round(PIXEL_DECIMALS).tolist() for ring in pixels]
    if place.kind == "polygon":
        # Contours are counted from the centre of the first pixel, boxes from its corner.
        contours = [[Point(x - 0.5, y - 0.5) for x, y in ring] for ring in rings]
        return [SegmentedObject(place.label, score, contours)]
    if place.kind == "point":
        return [LocatedPoint(place.label, score, *rings[0][0])]
    (left, top), (right, bottom) = rings[0]
    return [DetectedObject(place.label, score, left, top, right, bottom)] if left < right and top < bottom else []
