"""Decide the preprocessing of a model from its settings and files."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from app.core.runtimes.onnxruntime.files.model_files import ModelFiles
from app.core.runtimes.onnxruntime.graph import ImageInputs
from app.core.runtimes.onnxruntime.images.preprocessing import (
    BYTE,
    IMAGENET_MEAN,
    IMAGENET_STD,
    LETTERBOX_FILL,
    NO_PREPROCESSING,
    ONES,
    ZERO_FILL,
    ZEROS,
    DynamicSize,
    Interpolation,
    PartialPreprocessing,
    Preprocessing,
    Resize,
    Triple,
    as_triple,
)
from app.core.settings.model import PreprocessingSettings
from metadata.model import Fact, Origin
from tasks.inference.tensor import Datatype
from tasks.task import TaskType

T = TypeVar("T")

_MAX_UNIT_SCALE = 0.01
"""Smaller factors are taken for 1/255, or the like."""


def decide_size(
    inputs: ImageInputs,
    model_files: ModelFiles,
    facts: list[Fact],
    task_type: TaskType | None,
    defaults: PartialPreprocessing = NO_PREPROCESSING,
) -> tuple[int, int]:
    """Decide the (height, width) of the graph's input, pixels.

    The decision is added to `facts`. Only a guess depends on `task_type`, which is None before the task is known.
    `defaults` come from the layout. Raise ModelError if the settings contradict the graph, or a file declares an
    invalid size.
    """
    fixed, declared = inputs.sides, model_files.settings.preprocessing.size
    if declared is not None and any(own not in (-1, side) for own, side in zip(fixed, declared, strict=True)):
        reason = f"its input is {_sides(fixed)} pixels, but model-settings.json declares {_sides(declared)}"
        raise model_files.error(reason)
    guessed = 224 if task_type is TaskType.IMAGE_CLASSIFICATION else 640
    if declared is None and -1 in fixed:
        model_files.metadata.require_readable("imgsz", '"preprocessing": {"size": [height, width]}')
    chosen = _choose(
        facts,
        "input size",
        (declared, Origin.DECLARED),
        (fixed if -1 not in fixed else None, Origin.MODEL_FILE),
        (model_files.metadata.size, Origin.MODEL_FILE),
        *model_files.folder.sizes,
        (model_files.shown_size, Origin.SHAPES),
        (defaults.size, defaults.origin),
        ((guessed, guessed), Origin.GUESSED),
        to_text=_sides,
    )
    pairs = zip(fixed, chosen, strict=True)
    height, width = (next((side for side in pair if side != -1), guessed) for pair in pairs)
    if min(height, width) < 1:
        raise model_files.error(f"its input cannot be {height}x{width} pixels")
    return height, width


def decide_preprocessing(
    inputs: ImageInputs,
    model_files: ModelFiles,
    facts: list[Fact],
    task_type: TaskType,
    defaults: PartialPreprocessing = NO_PREPROCESSING,
) -> Preprocessing:
    """Decide the preprocessing, and add the decisions to `facts`; `defaults` come from the layout.

    Raise ModelError for settings that contradict the graph.
    """
    size = decide_size(inputs, model_files, facts, task_type, defaults)
    declared, is_grey = model_files.settings.preprocessing, inputs.channels == 1
    is_ultralytics = model_files.ultralytics_task is not None
    hints = None if is_ultralytics else model_files.preprocessing_of_folder(task_type)
    hints = hints or NO_PREPROCESSING
    usual_resize: Resize = "crop" if task_type is TaskType.IMAGE_CLASSIFICATION else "letterbox"
    resize: Resize = _choose(
        facts,
        "resize",
        (declared.resize, Origin.DECLARED),
        (usual_resize if is_ultralytics else None, Origin.MODEL_FILE),
        (hints.resize, hints.origin),
        (defaults.resize, defaults.origin),
        (usual_resize, Origin.GUESSED),
    )
    sources = _sources(resize, task_type, model_files, hints, defaults, is_grey=is_grey)

    def choose(topic: str, name: str, to_text: Callable[[Any], str] = str) -> Any:
        values = ((getattr(source, name), source.origin) for source in sources)
        return _choose(facts, topic, *values, to_text=to_text)

    interpolation: Interpolation = choose("interpolation", "interpolation")
    antialias: bool = choose("antialiasing", "antialias", {True: "yes, as Pillow", False: "no, as OpenCV"}.__getitem__)
    dynamic_size = _decide_dynamic_size(inputs, resize, model_files, facts, (hints, defaults))
    shorter_side = _decide_shorter_side(size, resize, model_files, facts, hints)
    if resize in ("letterbox", "pad", "line") and declared.fill is not None:
        facts.append(Fact("fill", str(declared.fill), Origin.DECLARED))
    scale, mean, std = 1.0, ZEROS, ONES
    if inputs.image.datatype is not Datatype.UINT8:
        to_text: Callable[[Triple], str] = (lambda values: f"{values[0]:g}") if is_grey else _numbers
        scale = choose("scale", "scale", _number)
        mean, std = choose("mean", "mean", to_text), choose("std", "std", to_text)
        _check_normalisation(model_files, scale, mean, std, facts[-1].origin, is_grey=is_grey)
    elif _declares_normalisation(declared):
        raise model_files.error("its input is uint8 pixels, so model-settings.json cannot declare scale, mean or std")
    else:
        facts.append(Fact("normalisation", "none, the input is uint8", Origin.MODEL_FILE))
    order = "RGB"
    if not is_grey:
        order = choose("channel order", "channel_order")
    elif declared.channel_order is not None:
        raise model_files.error("its input has one channel, so model-settings.json cannot declare channel_order")
    else:
        facts.append(Fact("channels", "one, grey: 0.299 R + 0.587 G + 0.114 B", Origin.SHAPES))
    fills = (declared.fill, hints.fill, defaults.fill, None if resize == "line" else LETTERBOX_FILL)
    fill = next((fill for fill in fills if fill is not None), ZERO_FILL)
    box_scale = defaults.box_scale if resize == defaults.resize else None
    return Preprocessing(
        height=size[0],
        width=size[1],
        resize=resize,
        shorter_side=shorter_side,
        interpolation=interpolation,
        antialias=antialias,
        dynamic_size=dynamic_size,
        fill=None if fill == ZERO_FILL else fill,
        scale=scale,
        mean=mean,
        std=std,
        bgr=order == "BGR",
        crop=declared.crop or hints.crop or "torchvision",
        box_scale=box_scale or ("common" if resize == "letterbox" else "axes"),
        resizes_floats=defaults.resizes_floats and (interpolation, antialias) == ("bilinear", False),
    )


def _check_normalisation(
    model_files: ModelFiles, scale: float, mean: Triple, std: Triple, origin: Origin, *, is_grey: bool
) -> None:
    """Reject statistics of three channels for one, a division by 0, and statistics that do not fit the scale."""
    for name, values in (("mean", mean), ("std", std)):
        if is_grey and len(set(values)) > 1:
            raise model_files.error(
                f"its input has one channel, but {name} is {_numbers(values)}, for R, G and B; declare one number: "
                f'{{"preprocessing": {{"{name}": {values[0]:g}}}}} in model-settings.json'
            )
    if 0 in std:
        raise model_files.error(f"{origin} declares a standard deviation of 0, but pixels are divided by it")
    if max(*mean, *std) > 1 and scale < _MAX_UNIT_SCALE:
        raise model_files.error(
            f"mean {_numbers(mean)} and std {_numbers(std)} are for pixels in 0..255, but scale {_number(scale)} "
            f'makes them 0..1 first; declare "scale": 1 in the preprocessing of model-settings.json, or divide '
            f"mean and std by 255: {_numbers(value * BYTE for value in mean)} and "
            f"{_numbers(value * BYTE for value in std)}"
        )


def _choose(
    facts: list[Fact], topic: str, *candidates: tuple[T | None, Origin], to_text: Callable[[T], str] = str
) -> T:
    """Return and record the first candidate that is not None; the last one must be a value."""
    value, origin = next((value, origin) for value, origin in candidates if value is not None)
    facts.append(Fact(topic, to_text(value), origin))
    return value


def _sources(
    resize: Resize,
    task_type: TaskType,
    model_files: ModelFiles,
    hints: PartialPreprocessing,
    defaults: PartialPreprocessing,
    *,
    is_grey: bool,
) -> Sequence[PartialPreprocessing]:
    """Return the sources of resampling, normalisation and channel order; the last is complete."""
    declared, metadata = model_files.settings.preprocessing, model_files.metadata
    any_declared = _declares_normalisation(declared)
    imagenet = task_type is TaskType.IMAGE_CLASSIFICATION and not any_declared and not is_grey
    mean, std = as_triple(declared.mean), as_triple(declared.std)
    # A mean or deviation over 1 refers to pixels in 0..255, which must not be scaled before.
    unscaled = max(*(mean or ZEROS), *(std or ZEROS)) > 1
    usual = PartialPreprocessing(
        origin=Origin.MODEL_FILE,
        interpolation="bilinear",
        # Ultralytics, YOLOX and PaddleOCR pad and resize with OpenCV; torchvision, timm and transformers use Pillow.
        antialias=resize in ("crop", "stretch"),
        scale=BYTE,
        mean=ZEROS,
        std=ONES,
        channel_order="RGB",
    )
    return (
        PartialPreprocessing(
            origin=Origin.DECLARED,
            interpolation=declared.interpolation,
            antialias=None if declared.antialias is None else bool(declared.antialias),
            scale=declared.scale,
            mean=mean,
            std=std,
            channel_order=declared.channel_order,
        ),
        PartialPreprocessing(origin=Origin.GUESSED, scale=1.0 if unscaled else None),
        PartialPreprocessing(
            origin=Origin.MODEL_FILE, interpolation=metadata.interpolation, antialias=metadata.antialias
        ),
        usual if model_files.ultralytics_task is not None else NO_PREPROCESSING,
        hints,
        msgspec.structs.replace(defaults, mean=None, std=None) if any_declared else defaults,
        msgspec.structs.replace(
            usual,
            origin=Origin.GUESSED,
            mean=IMAGENET_MEAN if imagenet else ZEROS,
            std=IMAGENET_STD if imagenet else ONES,
        ),
    )


def _decide_dynamic_size(
    inputs: ImageInputs,
    resize: Resize,
    model_files: ModelFiles,
    facts: list[Fact],
    sources: Sequence[PartialPreprocessing],
) -> DynamicSize | None:
    """Return the rule for the size of each image; None if the settings declare a size or a resize mode."""
    declared = model_files.settings.preprocessing
    if declared.size is not None or declared.resize is not None:
        return None
    for source in sources:
        dynamic_size = source.dynamic_size
        if dynamic_size is None or resize != getattr(dynamic_size, "resize", "stretch"):
            continue
        if inputs.sides in ((-1, -1), (getattr(dynamic_size, "height", -1), getattr(dynamic_size, "width", -1))):
            facts.append(Fact("size of each image", str(dynamic_size), source.origin))
            return dynamic_size
    return None


def _decide_shorter_side(
    size: tuple[int, int], resize: Resize, model_files: ModelFiles, facts: list[Fact], hints: PartialPreprocessing
) -> int:
    if resize not in ("crop", "stretch"):
        return min(size)
    fraction, origin, longer = model_files.settings.preprocessing.crop_fraction, Origin.DECLARED, 0
    if fraction is None and resize == hints.resize:
        fraction, origin, longer = hints.crop_fraction, hints.origin, hints.shorter_side
    shorter_side = max(min(size) if fraction is None else math.floor(min(size) / fraction), longer)
    if shorter_side != min(size):
        facts.append(Fact("crop", f"shorter side to {shorter_side}, then centre crop {_sides(size)}", origin))
    return shorter_side


def _declares_normalisation(declared: PreprocessingSettings) -> bool:
    return any(value is not None for value in (declared.scale, declared.mean, declared.std))


def _sides(sides: Iterable[int]) -> str:
    return "x".join("any" if side == -1 else str(side) for side in sides)


def _number(value: float) -> str:
    return "1/255" if abs(value - BYTE) < 1e-6 else f"{value:g}"


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
