"""Decide the preprocessing of a model from its settings and files."""

import math
from collections.abc import Sequence

import msgspec

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.files.model_files import Facts, ModelFiles
from app.runtimes.onnxruntime.images.dynamic_input import DynamicSize, TextLine
from app.runtimes.onnxruntime.images.hints import NO_HINTS, Hints, processor_hints, processor_size, timm_hints
from app.runtimes.onnxruntime.images.inputs import ImageInputs
from app.runtimes.onnxruntime.images.placement import BoxScale, Resize
from app.runtimes.onnxruntime.images.preprocessing_defaults import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    NO_DEFAULTS,
    PreprocessingDefaults,
    Triple,
)
from app.runtimes.onnxruntime.images.resampling import Antialias, Interpolation
from tasks.inference.tensor import Datatype
from tasks.task import TaskType

__all__ = ("Preprocessing", "decide_preprocessing", "decide_size")

_BYTE = 1 / 255
_MAX_UNIT_SCALE = 0.01
"""Smaller factors are taken for 1/255, or the like."""
_ZEROS: Triple = (0.0, 0.0, 0.0)
_ONES: Triple = (1.0, 1.0, 1.0)
_LETTERBOX_FILL = 114
"""The grey of Ultralytics' LetterBox."""
_ORDERS = {False: "RGB", True: "BGR"}
_FILTERS: dict[Antialias, str] = {True: "yes, as Pillow", False: "no, as OpenCV", "fast": "approximately"}


class Preprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """``input = (pixel * scale - mean) / std`` for the resized image.

    Attributes:
        height: height of the input, pixels.
        width: width of the input, pixels.
        resize: resize mode (`app.runtimes.onnxruntime.images.placement.fit`).
        shorter_side: length of the shorter side before the centre crop of `crop` and `stretch`, pixels.
        interpolation: filter for resizing.
        antialias: whether the filter antialiases (`app.runtimes.onnxruntime.images.resampling.resize_window`).
        dynamic_size: rule for the size of each image, instead of `height` and `width`; None for a fixed size.
        fill: grey value of the padding, 0..255; None for 0 after normalisation.
        scale: factor for pixels in 0..255.
        mean: means of R, G, B.
        std: standard deviations of R, G, B.
        bgr: whether the input's first channel is blue.
        crop_half_even: whether a centre crop rounds half a pixel to even, as in torchvision, or down, as in
            transformers.
        box_scale: scale that maps boxes back (`app.runtimes.onnxruntime.images.placement.fit`).
        resizes_floats: whether resized pixels are not rounded to bytes, as in RF-DETR; only for OpenCV's bilinear
            filter.
    """

    height: int
    width: int
    resize: Resize
    shorter_side: int
    interpolation: Interpolation = "bilinear"
    antialias: Antialias = True
    dynamic_size: DynamicSize | None = None
    fill: int | None = _LETTERBOX_FILL
    scale: float = _BYTE
    mean: Triple = _ZEROS
    std: Triple = _ONES
    bgr: bool = False
    crop_half_even: bool = True
    box_scale: BoxScale = "axes"
    resizes_floats: bool = False


def decide_size(
    inputs: ImageInputs,
    model_files: ModelFiles,
    facts: Facts,
    task_type: TaskType | None,
    defaults: PreprocessingDefaults = NO_DEFAULTS,
) -> tuple[int, int]:
    """Decide the (height, width) of the graph's input, pixels.

    Args:
        inputs: inputs of the graph.
        model_files: the model's files.
        facts: records the decision.
        task_type: the model's task, if known; only a guess depends on it.
        defaults: defaults of the model's layout, if known.

    Raises:
        ModelError: if the settings contradict the graph, or a file declares an invalid size.
    """
    fixed, declared = inputs.sides, model_files.settings.preprocessing.size
    if declared is not None and any(
        side not in (-1, declared_side) for side, declared_side in zip(fixed, declared, strict=True)
    ):
        raise model_files.error(
            f"its input is {_sides(fixed)} pixels, but model-settings.json declares {_sides(declared)}"
        )
    preprocessor, config = model_files.hugging_face.preprocessor, model_files.hugging_face.config
    guessed = 224 if task_type is TaskType.IMAGE_CLASSIFICATION else 640
    height, width = facts.choose(
        "input size",
        (declared, Origin.DECLARED),
        (fixed if -1 not in fixed else None, Origin.MODEL_FILE),
        (model_files.metadata.size, Origin.MODEL_FILE),
        (processor_size(preprocessor), Origin.PREPROCESSOR),
        (config.size if config else None, Origin.CONFIG),
        (defaults.size, defaults.origin),
        fallback=((guessed, guessed), Origin.GUESSED),
        to_text=_sides,
    )
    size = height if fixed[0] == -1 else fixed[0], width if fixed[1] == -1 else fixed[1]
    if min(size) < 1:
        raise model_files.error(f"its input cannot be {_sides(size)} pixels")
    return size


def decide_preprocessing(
    inputs: ImageInputs,
    size: tuple[int, int],
    task_type: TaskType,
    model_files: ModelFiles,
    facts: Facts,
    defaults: PreprocessingDefaults = NO_DEFAULTS,
) -> Preprocessing:
    """Decide the preprocessing for an input size.

    Args:
        inputs: inputs of the graph.
        size: (height, width) from `decide_size`, pixels.
        task_type: the model's task.
        model_files: the model's files.
        facts: records the decisions.
        defaults: defaults of the model's layout.

    Raises:
        ModelError: for settings that contradict the graph.
    """
    declared = model_files.settings.preprocessing
    is_ultralytics = model_files.ultralytics_task is not None
    file_hints = processor_hints(model_files.hugging_face.preprocessor, task_type) or timm_hints(
        model_files.hugging_face.config
    )
    hints = file_hints if file_hints is not None and not is_ultralytics else NO_HINTS
    usual_resize: Resize = "crop" if task_type is TaskType.IMAGE_CLASSIFICATION else "letterbox"
    resize: Resize = facts.choose(
        "resize",
        (declared.resize, Origin.DECLARED),
        (usual_resize if is_ultralytics else None, Origin.MODEL_FILE),
        (hints.resize, hints.origin),
        (defaults.resize, defaults.origin),
        fallback=(usual_resize, Origin.GUESSED),
    )
    interpolation, antialias = _decide_resampling(resize, model_files, facts, hints, defaults)
    dynamic_size = _decide_dynamic_size(inputs, resize, model_files, facts, hints, defaults)
    shorter_side = _decide_shorter_side(size, resize, model_files, facts, hints)
    if resize in ("letterbox", "pad", "line") and declared.fill is not None:
        facts.note("fill", str(declared.fill), Origin.DECLARED)
    scale, mean, std = _decide_normalisation(inputs, task_type, model_files, facts, hints, defaults)
    order = facts.choose(
        "channel order",
        (declared.channel_order, Origin.DECLARED),
        ("RGB" if is_ultralytics else None, Origin.MODEL_FILE),
        (None if hints.bgr is None else _ORDERS[hints.bgr], hints.origin),
        (None if defaults.bgr is None else _ORDERS[defaults.bgr], defaults.origin),
        fallback=("RGB", Origin.GUESSED),
    )
    usual_fill = None if resize == "line" else _LETTERBOX_FILL
    return Preprocessing(
        height=size[0],
        width=size[1],
        resize=resize,
        shorter_side=shorter_side,
        interpolation=interpolation,
        antialias=antialias,
        dynamic_size=dynamic_size,
        fill=next((fill for fill in (declared.fill, defaults.fill) if fill is not None), usual_fill),
        scale=scale,
        mean=mean,
        std=std,
        bgr=order == "BGR",
        crop_half_even=hints.crop_half_even,
        box_scale=(defaults.box_scale if resize == defaults.resize else None)
        or ("common" if resize == "letterbox" else "axes"),
        resizes_floats=defaults.resizes_floats and (interpolation, antialias) == ("bilinear", False),
    )


def _decide_resampling(
    resize: Resize, model_files: ModelFiles, facts: Facts, hints: Hints, defaults: PreprocessingDefaults
) -> tuple[Interpolation, Antialias]:
    declared, metadata = model_files.settings.preprocessing, model_files.metadata
    is_ultralytics = model_files.ultralytics_task is not None
    # Ultralytics, YOLOX and PaddleOCR pad and resize with OpenCV; torchvision, timm and transformers use Pillow.
    usual_antialias: Antialias = resize in ("crop", "stretch")
    interpolation: Interpolation = facts.choose(
        "interpolation",
        (declared.interpolation, Origin.DECLARED),
        (metadata.interpolation, Origin.MODEL_FILE),
        ("bilinear" if is_ultralytics else None, Origin.MODEL_FILE),
        (hints.interpolation, hints.origin),
        (defaults.interpolation, defaults.origin),
        fallback=("bilinear", Origin.GUESSED),
    )
    antialias: Antialias = facts.choose(
        "antialiasing",
        (declared.antialias, Origin.DECLARED),
        (metadata.antialias, Origin.MODEL_FILE),
        (usual_antialias if is_ultralytics else None, Origin.MODEL_FILE),
        (True if hints.interpolation else None, hints.origin),
        (defaults.antialias, defaults.origin),
        fallback=(usual_antialias, Origin.GUESSED),
        to_text=_FILTERS.__getitem__,
    )
    return interpolation, antialias


def _decide_dynamic_size(
    inputs: ImageInputs,
    resize: Resize,
    model_files: ModelFiles,
    facts: Facts,
    hints: Hints,
    defaults: PreprocessingDefaults,
) -> DynamicSize | None:
    """Return the rule for the size of each image; None if the settings declare a size or a resize mode."""
    declared = model_files.settings.preprocessing
    if declared.size is not None or declared.resize is not None:
        return None
    for dynamic_size, origin in ((hints.dynamic_size, hints.origin), (defaults.dynamic_size, defaults.origin)):
        if dynamic_size is None or resize != ("line" if isinstance(dynamic_size, TextLine) else "stretch"):
            continue
        if inputs.sides == (-1, -1) or (
            isinstance(dynamic_size, TextLine) and inputs.sides == (dynamic_size.height, -1)
        ):
            facts.note("size of each image", dynamic_size.summary, origin)
            return dynamic_size
    return None


def _decide_shorter_side(
    size: tuple[int, int], resize: Resize, model_files: ModelFiles, facts: Facts, hints: Hints
) -> int:
    fraction = model_files.settings.preprocessing.crop_fraction
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
    inputs: ImageInputs,
    task_type: TaskType,
    model_files: ModelFiles,
    facts: Facts,
    hints: Hints,
    defaults: PreprocessingDefaults,
) -> tuple[float, Triple, Triple]:
    declared = model_files.settings.preprocessing
    any_declared = any(value is not None for value in (declared.scale, declared.mean, declared.std))
    if inputs.image.datatype is Datatype.UINT8:
        if any_declared:
            raise model_files.error(
                "its input is uint8 pixels, so model-settings.json cannot declare scale, mean or std"
            )
        facts.note("normalisation", "none, the input is uint8", Origin.MODEL_FILE)
        return 1.0, _ZEROS, _ONES
    if declared.std is not None and 0 in declared.std:
        raise model_files.error("model-settings.json declares a std of 0, but pixels are divided by it")
    is_ultralytics = model_files.ultralytics_task is not None
    # A mean or deviation over 1 refers to pixels in 0..255, which must not be scaled before.
    unscaled = max(*(declared.mean or _ZEROS), *(declared.std or _ZEROS)) > 1
    imagenet = task_type is TaskType.IMAGE_CLASSIFICATION and not any_declared
    scale = facts.choose(
        "scale",
        (declared.scale, Origin.DECLARED),
        (1.0 if unscaled else None, Origin.GUESSED),
        (_BYTE if is_ultralytics else None, Origin.MODEL_FILE),
        (hints.scale, hints.origin),
        (defaults.scale, defaults.origin),
        fallback=(_BYTE, Origin.GUESSED),
        to_text=_number,
    )
    mean = facts.choose(
        "mean",
        (declared.mean, Origin.DECLARED),
        (_ZEROS if is_ultralytics else None, Origin.MODEL_FILE),
        (hints.mean, hints.origin),
        (None if any_declared else defaults.mean, defaults.origin),
        fallback=(IMAGENET_MEAN if imagenet else _ZEROS, Origin.GUESSED),
        to_text=_numbers,
    )
    std = facts.choose(
        "std",
        (declared.std, Origin.DECLARED),
        (_ONES if is_ultralytics else None, Origin.MODEL_FILE),
        (hints.std, hints.origin),
        (None if any_declared else defaults.std, defaults.origin),
        fallback=(IMAGENET_STD if imagenet else _ONES, Origin.GUESSED),
        to_text=_numbers,
    )
    if max(*mean, *std) > 1 and scale < _MAX_UNIT_SCALE:
        raise model_files.error(
            f"mean {_numbers(mean)} and std {_numbers(std)} are for pixels in 0..255, but scale {_number(scale)} makes "
            f'them 0..1 first; declare "scale": 1 in the preprocessing of model-settings.json, or divide mean and std '
            f"by 255: {_numbers(_divided(mean))} and {_numbers(_divided(std))}"
        )
    if 0 in std:
        raise model_files.error(f"{hints.origin} declares a standard deviation of 0, but pixels are divided by it")
    return scale, mean, std


def _sides(sides: Sequence[int]) -> str:
    return "x".join("any" if side == -1 else str(side) for side in sides)


def _divided(values: Triple) -> Triple:
    red, green, blue = values
    return red * _BYTE, green * _BYTE, blue * _BYTE


def _number(value: float) -> str:
    return "1/255" if abs(value - _BYTE) < 1e-6 else f"{value:g}"


def _numbers(values: Triple) -> str:
    return ", ".join(f"{value:g}" for value in values)
