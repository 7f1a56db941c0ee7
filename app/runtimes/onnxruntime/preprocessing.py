"""Decide the preprocessing of a model from its settings and files."""

import math
from collections.abc import Sequence

import msgspec

from app.engine.description import Origin
from app.runtimes.onnxruntime.conventions import IMAGENET_MEAN, IMAGENET_STD, NO_CONVENTIONS, Conventions, Triple
from app.runtimes.onnxruntime.elastic import Elastic, Line
from app.runtimes.onnxruntime.evidence import Evidence, Facts
from app.runtimes.onnxruntime.hints import NO_HINTS, Hints, processor_hints, processor_size, timm_hints
from app.runtimes.onnxruntime.inputs import ImageInputs
from app.runtimes.onnxruntime.placement import Resize
from tasks.exchange.tensor import Datatype
from tasks.task import TaskType

__all__ = ("Preprocessing", "decide_preprocessing", "decide_size")

_BYTE = 1 / 255
_ZEROS: Triple = (0.0, 0.0, 0.0)
_ONES: Triple = (1.0, 1.0, 1.0)
_LETTERBOX_FILL = 114
"""The grey of Ultralytics' LetterBox."""
_ORDERS = {False: "RGB", True: "BGR"}


class Preprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """``input = (pixel * scale - mean) / std`` for the resized image.

    Attributes:
        height: height of the input, pixels.
        width: width of the input, pixels.
        resize: resize mode (`app.runtimes.onnxruntime.placement.fit`).
        shorter_side: length of the shorter side before the centre crop of `crop` and `stretch`, pixels.
        elastic: rule for the size of each image, instead of `height` and `width`; None for a fixed size.
        fill: grey value of the padding, 0..255.
        scale: factor for pixels in 0..255.
        mean: means of R, G, B.
        std: standard deviations of R, G, B.
        bgr: whether the input's first channel is blue.
    """

    height: int
    width: int
    resize: Resize
    shorter_side: int
    elastic: Elastic | None = None
    fill: int = _LETTERBOX_FILL
    scale: float = _BYTE
    mean: Triple = _ZEROS
    std: Triple = _ONES
    bgr: bool = False


def decide_size(
    inputs: ImageInputs,
    evidence: Evidence,
    facts: Facts,
    task_type: TaskType | None,
    usual: Conventions = NO_CONVENTIONS,
) -> tuple[int, int]:
    """Decide the (height, width) of the graph's input, pixels.

    Args:
        inputs: inputs of the graph.
        evidence: the model's files.
        facts: records the decision.
        task_type: the model's task, if known; only a guess depends on it.
        usual: defaults of the model's layout, if known.

    Raises:
        ModelError: if the settings contradict the graph, or a file declares an invalid size.
    """
    fixed, declared = inputs.sides, evidence.settings.preprocessing.size
    if declared is not None and any(side not in (-1, own) for side, own in zip(fixed, declared, strict=True)):
        raise evidence.error(
            f"its input is {_sides(fixed)} pixels, but model-settings.json declares {_sides(declared)}"
        )
    preprocessor, config = evidence.neighbours.preprocessor, evidence.neighbours.config
    guessed = 224 if task_type is TaskType.IMAGE_CLASSIFICATION else 640
    height, width = facts.choose(
        "input size",
        (declared, Origin.DECLARED),
        (fixed if -1 not in fixed else None, Origin.MODEL_FILE),
        (evidence.metadata.size, Origin.MODEL_FILE),
        (processor_size(preprocessor), Origin.PREPROCESSOR),
        (config.size if config else None, Origin.CONFIG),
        (usual.size, usual.origin),
        last=((guessed, guessed), Origin.GUESSED),
        shown=_sides,
    )
    size = height if fixed[0] == -1 else fixed[0], width if fixed[1] == -1 else fixed[1]
    if min(size) < 1:
        raise evidence.error(f"its input cannot be {_sides(size)} pixels")
    return size


def decide_preprocessing(
    inputs: ImageInputs,
    size: tuple[int, int],
    task_type: TaskType,
    evidence: Evidence,
    facts: Facts,
    usual: Conventions = NO_CONVENTIONS,
) -> Preprocessing:
    """Decide the preprocessing for an input size.

    Args:
        inputs: inputs of the graph.
        size: (height, width) from `decide_size`, pixels.
        task_type: the model's task.
        evidence: the model's files.
        facts: records the decisions.
        usual: defaults of the model's layout.

    Raises:
        ModelError: for settings that contradict the graph.
    """
    declared = evidence.settings.preprocessing
    conventional = evidence.conventional_task is not None
    found = processor_hints(evidence.neighbours.preprocessor, task_type) or timm_hints(evidence.neighbours.config)
    hints = found if found is not None and not conventional else NO_HINTS
    common: Resize = "crop" if task_type is TaskType.IMAGE_CLASSIFICATION else "letterbox"
    resize: Resize = facts.choose(
        "resize",
        (declared.resize, Origin.DECLARED),
        (common if conventional else None, Origin.MODEL_FILE),
        (hints.resize, hints.origin),
        (usual.resize, usual.origin),
        last=(common, Origin.GUESSED),
    )
    elastic = _decide_elastic(inputs, resize, evidence, facts, hints, usual)
    shorter_side = _decide_shorter_side(size, resize, evidence, facts, hints)
    if resize in ("letterbox", "pad") and declared.fill is not None:
        facts.note("fill", str(declared.fill), Origin.DECLARED)
    scale, mean, std = _decide_normalisation(inputs, task_type, evidence, facts, hints, usual)
    order = facts.choose(
        "channel order",
        (declared.channel_order, Origin.DECLARED),
        ("RGB" if conventional else None, Origin.MODEL_FILE),
        (None if hints.bgr is None else _ORDERS[hints.bgr], hints.origin),
        (None if usual.bgr is None else _ORDERS[usual.bgr], usual.origin),
        last=("RGB", Origin.GUESSED),
    )
    fills = (declared.fill, usual.fill, _LETTERBOX_FILL)
    return Preprocessing(
        height=size[0],
        width=size[1],
        resize=resize,
        shorter_side=shorter_side,
        elastic=elastic,
        fill=next(fill for fill in fills if fill is not None),
        scale=scale,
        mean=mean,
        std=std,
        bgr=order == "BGR",
    )


def _decide_elastic(
    inputs: ImageInputs, resize: Resize, evidence: Evidence, facts: Facts, hints: Hints, usual: Conventions
) -> Elastic | None:
    """Return the rule for the size of each image; None if the settings declare a size or a resize mode."""
    declared = evidence.settings.preprocessing
    if declared.size is not None or declared.resize is not None:
        return None
    for elastic, origin in ((hints.elastic, hints.origin), (usual.elastic, usual.origin)):
        if elastic is None or resize != ("pad" if isinstance(elastic, Line) else "stretch"):
            continue
        if inputs.sides == (-1, -1) or (isinstance(elastic, Line) and inputs.sides == (elastic.height, -1)):
            facts.note("size of each image", elastic.told, origin)
            return elastic
    return None


def _decide_shorter_side(size: tuple[int, int], resize: Resize, evidence: Evidence, facts: Facts, hints: Hints) -> int:
    fraction = evidence.settings.preprocessing.crop_fraction
    if resize not in ("crop", "stretch"):
        return min(size)
    origin, shorter_side = Origin.DECLARED, min(size)
    if fraction is not None:
        shorter_side = math.floor(min(size) / fraction)
    elif resize == hints.resize:
        origin = hints.origin
        if hints.crop_fraction is not None:
            shorter_side = math.floor(min(size) / hints.crop_fraction)
        shorter_side = max(shorter_side, hints.shorter_side)
    if shorter_side != min(size):
        facts.note("crop", f"shorter side to {shorter_side}, then centre crop {_sides(size)}", origin)
    return shorter_side


def _decide_normalisation(
    inputs: ImageInputs, task_type: TaskType, evidence: Evidence, facts: Facts, hints: Hints, usual: Conventions
) -> tuple[float, Triple, Triple]:
    declared = evidence.settings.preprocessing
    any_declared = any(value is not None for value in (declared.scale, declared.mean, declared.std))
    if inputs.image.datatype is Datatype.UINT8:
        if any_declared:
            raise evidence.error("its input is uint8 pixels, so model-settings.json cannot declare scale, mean or std")
        facts.note("normalisation", "none, the input is uint8", Origin.MODEL_FILE)
        return 1.0, _ZEROS, _ONES
    if declared.std is not None and 0 in declared.std:
        raise evidence.error("model-settings.json declares a std of 0, but pixels are divided by it")
    conventional = evidence.conventional_task is not None
    # A mean or deviation over 1 refers to pixels in 0..255, which must not be scaled before.
    unscaled = max(*(declared.mean or _ZEROS), *(declared.std or _ZEROS)) > 1
    imagenet = task_type is TaskType.IMAGE_CLASSIFICATION and not any_declared
    scale = facts.choose(
        "scale",
        (declared.scale, Origin.DECLARED),
        (1.0 if unscaled else None, Origin.GUESSED),
        (_BYTE if conventional else None, Origin.MODEL_FILE),
        (hints.scale, hints.origin),
        (usual.scale, usual.origin),
        last=(_BYTE, Origin.GUESSED),
        shown=_number,
    )
    mean = facts.choose(
        "mean",
        (declared.mean, Origin.DECLARED),
        (_ZEROS if conventional else None, Origin.MODEL_FILE),
        (hints.mean, hints.origin),
        (None if any_declared else usual.mean, usual.origin),
        last=(IMAGENET_MEAN if imagenet else _ZEROS, Origin.GUESSED),
        shown=_numbers,
    )
    std = facts.choose(
        "std",
        (declared.std, Origin.DECLARED),
        (_ONES if conventional else None, Origin.MODEL_FILE),
        (hints.std, hints.origin),
        (None if any_declared else usual.std, usual.origin),
        last=(IMAGENET_STD if imagenet else _ONES, Origin.GUESSED),
        shown=_numbers,
    )
    if 0 in std:
        raise evidence.error(f"{hints.origin} declares a standard deviation of 0, but pixels are divided by it")
    return scale, mean, std


def _sides(sides: Sequence[int]) -> str:
    return "x".join("any" if side == -1 else str(side) for side in sides)


def _number(value: float) -> str:
    return "1/255" if abs(value - _BYTE) < 1e-6 else f"{value:g}"


def _numbers(values: Triple) -> str:
    return ", ".join(f"{value:g}" for value in values)
