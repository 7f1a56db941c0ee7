"""Decode the text detectors and recognisers that PaddleOCR exports.

- ``text-map``: detection by differentiable binarisation (``ppocr/postprocess/db_postprocess.py``): [b, 1, h, w], text
  scores in 0..1. Cells over a threshold form regions. The score of a region is the mean of the map within its minimum
  rectangle. The rectangle is then expanded on all sides by its area times a ratio over its perimeter, which reverts the
  shrinking in training. Rectangles are measured between the centres of cells.
- ``ctc``: recognition by connectionist temporal classification (``ppocr/postprocess/rec_postprocess.py``):
  [b, T, characters]. Take the best character at each of T steps from left to right, and drop repetitions and blanks,
  which are character 0. ``ctc`` in the settings selects another axis for the steps, and the last character as the
  blank, as other recognisers have them. The metadata key ``character`` lists the other characters, one per line,
  followed by a space unless the file lists one. Images contain one line of text and are 48 pixels high. The task is
  IMAGE_TEXT_TO_TEXT. The answer to every prompt is the recognised text.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.graph import ImageGraph, RawOutputs
from app.core.runtimes.onnxruntime.heads import OnnxImageModel, blank_image
from app.core.runtimes.onnxruntime.images.image_batch import Placement
from app.core.runtimes.onnxruntime.images.preprocessing import HALVES, MIN_SIDE, PartialPreprocessing, Resize
from app.core.runtimes.onnxruntime.layouts.candidates import Candidates
from app.core.runtimes.onnxruntime.layouts.layout import Bound, GraphView, Layout, Match
from app.plugins.layouts.settings import CtcSettings
from metadata.model import Fact, Origin
from tasks.image_text_to_text import DEFAULT_PROMPT, Answers, GenerationParameters, ImageTextToText, PromptedImage
from tasks.object_detection import DetectionInput
from tasks.task import TaskType
from tasks.text.generation import reject_conversation, reject_schema
from tasks.vision.image import Image


class TextPage(msgspec.Struct, frozen=True, kw_only=True):
    """Reduce large images as RapidOCR does, then enlarge small ones and round to multiples of 32 as PaddleOCR does.

    The longer side has at most `max_side` pixels before the image is enlarged, and `max_enlarged` after that. The
    shorter side has at least `min_side` pixels, unless the longer one exceeds `max_enlarged`.
    """

    min_side: int
    max_side: int
    max_enlarged: int

    def __str__(self) -> str:
        return f"longer side reduced to {self.max_side}, then shorter one enlarged to {self.min_side}"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        longer = max(height, width)
        scale = max(min(1.0, self.max_side / longer), self.min_side / min(height, width))
        scale = min(scale, self.max_enlarged / longer)
        rounded_height, rounded_width = (
            max(MIN_SIDE, round(int(side * scale) / MIN_SIDE) * MIN_SIDE) for side in (height, width)
        )
        return rounded_height, rounded_width


class TextLine(msgspec.Struct, frozen=True, kw_only=True):
    """Fix the height, and derive the width from the image, as PaddleOCR's text recognition does; all in pixels.

    A narrower image than `min_width` is padded. A wider one than `max_width` is squeezed.
    """

    resize: ClassVar[Resize] = "line"
    height: int
    min_width: int
    max_width: int

    def __str__(self) -> str:
        return f"height {self.height}, width that of the image, {self.min_width} to {self.max_width}"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        return self.height, min(max(int(self.height * (width / height)), self.min_width), self.max_width)


_MAP_NAME = "text-map"
_INPUT_NAME = "x"
_OUTPUT_STARTS = ("sigmoid_", "fetch_name_", "save_infer_model")
"""Names of inputs and outputs from Paddle's converter."""

_THRESHOLD = 0.3
_GROWTH = 1.5
_MIN_WIDTH = 3
"""Cells, from centre to centre. Narrower regions are noise."""
_MIN_EXPANDED = 5
"""Cells. Regions that are narrower after they were expanded are noise, too."""
_MAX_REGIONS = 1000
_MAX_NOISE = 3
"""Pixels of the image. PaddleOCR drops boxes with a side of this length or less (``filter_tag_det_res``)."""

_MAP_DEFAULTS = PartialPreprocessing(
    size=(736, 736),
    resize="stretch",
    interpolation="bilinear",
    antialias=False,
    dynamic_size=TextPage(min_side=736, max_side=2000, max_enlarged=4000),
    scale=1 / 255,
    # PaddleOCR normalises BGR pixels with ImageNet's RGB statistics, so they are listed in reverse here.
    mean=(0.406, 0.456, 0.485),
    std=(0.225, 0.224, 0.229),
    channel_order="BGR",
    origin=Origin.GUESSED,
)


def _recognise_map(view: GraphView) -> Match | None:
    if len(view.outputs) != 1:
        return None
    (output,) = view.outputs
    if not output.is_float or output.blank.ndim != 4 or output.shape[1] != 1 or min(output.shape[2:]) < 2:
        return None
    is_paddle_export = view.inputs.image.name == _INPUT_NAME and output.name.startswith(_OUTPUT_STARTS)
    is_requested = view.declared_task is TaskType.ORIENTED_OBJECT_DETECTION or view.declared_layout == _MAP_NAME
    if not (is_paddle_export or is_requested):
        return None
    return Match(
        layout=_MAP_NAME,
        task_type=TaskType.ORIENTED_OBJECT_DETECTION,
        decode=_find,
        outputs=view.outputs,
        by_names=is_paddle_export,
        origin=Origin.MODEL_FILE if is_paddle_export else Origin.SHAPES,
        task_origin=Origin.MODEL_FILE,
        classes=1,
        names=("text",),
        preprocessing=_MAP_DEFAULTS,
    )


def _find(answer: RawOutputs, item: DetectionInput) -> Candidates:
    cells: NDArray[np.float32] = np.nan_to_num(answer.outputs[0][0])
    across, down = answer.width / cells.shape[1], answer.height / cells.shape[0]
    regions, _ = cv2.findContours((cells > _THRESHOLD).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    boxes: list[tuple[float, ...]] = []
    scores: list[float] = []
    for region in regions[:_MAX_REGIONS]:
        rectangle = cv2.minAreaRect(region)
        if min(rectangle[1]) < _MIN_WIDTH:
            continue
        corners: NDArray[Any] = cv2.boxPoints(rectangle)
        score = _mean_within(cells, corners)
        if score < item.floor:
            continue
        (cx, cy), (width, height), degrees = _expand(rectangle[1], corners)
        if min(width, height) < _MIN_EXPANDED:
            continue
        if _is_noise(cv2.boxPoints(((cx, cy), (width, height), degrees)) * np.array([across, down]), answer.placement):
            continue
        boxes.append(_in_pixels(cx, cy, width, height, degrees, across, down))
        scores.append(min(score, 1.0))
    found = np.array(boxes, np.float32).reshape(-1, 5)
    return Candidates(
        boxes=found,
        scores=np.array(scores, np.float32),
        class_ids=np.zeros(len(found), np.intp),
        extras=found[:, :0],
    )


def _in_pixels(
    cx: float, cy: float, width: float, height: float, degrees: float, across: float, down: float
) -> tuple[float, ...]:
    """Convert a rectangle of cells to cx, cy, w, h in input pixels and r in -pi/2..pi/2; w is the longer side."""
    if height > width:
        width, height, degrees = height, width, degrees - 90
    scale = math.sqrt(across * down)
    angle = math.remainder(math.radians(degrees), math.pi)
    return cx * across, cy * down, width * scale, height * scale, angle


def _expand(sides: Sequence[float], corners: NDArray[Any]) -> tuple[Sequence[float], tuple[float, float], float]:
    """Expand a rectangle of cells, whose corners PaddleOCR truncates to whole cells; return it as `cv2.minAreaRect`."""
    width, height = sides
    grown = _GROWTH * width * height / (width + height)
    centre, (width, height), degrees = cv2.minAreaRect(np.trunc(corners))
    return centre, (width + grown, height + grown), degrees


def _is_noise(corners: NDArray[Any], placement: Placement) -> bool:
    """Return whether a box with (4, 2) corners in input pixels is too small after it is rounded to image pixels."""
    offset, scale = (placement.offset_x, placement.offset_y), (placement.scale_x, placement.scale_y)
    points = np.rint((corners - offset) / scale)
    points = np.clip(points, 0, [placement.image_width - 1, placement.image_height - 1])
    return min(math.dist(points[0], points[1]), math.dist(points[0], points[3])) < _MAX_NOISE + 1


def _mean_within(cells: NDArray[np.float32], corners: NDArray[Any]) -> float:
    """Return the mean of the cells whose centres are in a rectangle with (4, 2) corners, or on its border."""
    limits = np.array(cells.shape[::-1]) - 1
    left, top = np.clip(np.floor(corners.min(axis=0)), 0, limits).astype(int).tolist()
    right, bottom = np.clip(np.ceil(corners.max(axis=0)), 0, limits).astype(int).tolist()
    inside = np.zeros((bottom - top + 1, right - left + 1), np.uint8)
    # PaddleOCR truncates the corners.
    cv2.fillPoly(inside, [(corners - np.array([left, top], np.float32)).astype(np.int32)], 1)
    return float(cv2.mean(cells[top : bottom + 1, left : right + 1], inside)[0])


_LINE_NAME = "ctc"
_LINE_DEFAULTS = PartialPreprocessing(
    size=(48, 320),
    resize="line",
    interpolation="bilinear",
    antialias=False,
    dynamic_size=TextLine(height=48, min_width=320, max_width=3200),
    scale=1 / 255,
    mean=HALVES,
    std=HALVES,
    channel_order="BGR",
)


def _recognise_line(view: GraphView) -> Match | None:
    if len(view.outputs) != 1 or not view.outputs[0].is_float or view.outputs[0].blank.ndim != 3:
        return None
    declared_labels, metadata_characters = view.model_files.declared_labels, view.model_files.metadata.characters
    is_requested = view.declared_task is TaskType.IMAGE_TEXT_TO_TEXT or view.declared_layout == _LINE_NAME
    if metadata_characters is None and not (is_requested and declared_labels):
        return None
    ctc, shape = view.model_files.settings.of(CtcSettings), view.outputs[0].shape
    if ctc.time_axis == 0 and shape[1] != 1:
        return None
    count = shape[1 if ctc.time_axis == 2 else 2]
    characters = _characters(declared_labels, metadata_characters, count, blank_last=ctc.blank == "last")
    if characters is None:
        source = Origin.DECLARED if declared_labels else "the file's metadata"
        number = len(declared_labels) if declared_labels else len((metadata_characters or "").splitlines())
        raise view.model_files.error(
            f"its output has {count} characters including the blank, but {source} lists {number}; "
            f'declare the others as "labels" in model-settings.json'
        )
    facts = [Fact("characters", str(len(characters)), Origin.DECLARED if declared_labels else Origin.MODEL_FILE)]
    if ctc != CtcSettings():
        facts.append(Fact("ctc", f"steps on axis {ctc.time_axis}, blank {ctc.blank}", Origin.DECLARED))
    return Match(
        layout=_LINE_NAME,
        task_type=TaskType.IMAGE_TEXT_TO_TEXT,
        decode=partial(_read, characters=characters, time_axis=ctc.time_axis),
        outputs=view.outputs,
        unbatched=ctc.time_axis == 0,
        by_names=True,
        origin=Origin.DECLARED if declared_labels else Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        head=_bind_reader,
        preprocessing=_LINE_DEFAULTS,
        facts=facts,
    )


def _characters(
    declared_labels: Sequence[str] | None, metadata_characters: str | None, count: int, *, blank_last: bool
) -> Sequence[str] | None:
    """Return the characters by number, with "" for the blank; None if their count is wrong."""
    # The list may contain characters that Python treats as line ends, such as U+2028, and may end with a line end.
    text = (metadata_characters or "").replace("\r\n", "\n")
    lists = (
        [declared_labels] if declared_labels else [text.split("\n"), text.rstrip("\n").split("\n"), text.splitlines()]
    )
    for candidate in lists:
        for alphabet in ([*candidate], [*candidate, " "]):
            if len(alphabet) + 1 == count:
                return [*alphabet, ""] if blank_last else ["", *alphabet]
    return None


def _read(answer: RawOutputs, *, characters: Sequence[str], time_axis: int) -> str:
    scores: NDArray[np.float32] = answer.outputs[0]
    if time_axis != 1:
        scores = scores[:, 0] if time_axis == 0 else scores.T
    steps: list[int] = scores.argmax(axis=1).tolist()
    previous = [-1, *steps]
    return "".join(characters[step] for step, last in zip(steps, previous, strict=False) if step != last)


def _bind_reader(graph: ImageGraph, match: Match, names: Sequence[str]) -> Bound:
    model = OnnxImageModel(graph, match, names, _text_answers, _only_image)
    return ImageTextToText(), model, PromptedImage((blank_image(graph),), (DEFAULT_PROMPT,), GenerationParameters())


def _only_image(item: PromptedImage) -> Image:
    reject_conversation(item.parameters.messages, item.path)
    reject_schema(item.parameters)
    return item.image


def _text_answers(model: OnnxImageModel, item: PromptedImage, answer: RawOutputs) -> Answers:
    """Answer every prompt with the text in the image, which has one line."""
    return Answers(prompts=item.prompts, answers=[model.match.decode(answer)] * len(item.prompts))


LAYOUTS = (
    Layout((_MAP_NAME,), (TaskType.ORIENTED_OBJECT_DETECTION,), "[b, 1, h, w]", _recognise_map),
    Layout((_LINE_NAME,), (TaskType.IMAGE_TEXT_TO_TEXT,), "[b, T, characters]", _recognise_line),
)
