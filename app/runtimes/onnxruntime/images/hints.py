"""Read preprocessing from the configuration files of transformers and timm."""

from math import floor

import msgspec

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.files.hugging_face_files import Config, Preprocessor, Size
from app.runtimes.onnxruntime.images.dynamic_input import DynamicSize, EdgeLimits
from app.runtimes.onnxruntime.images.placement import Resize
from app.runtimes.onnxruntime.images.preprocessing_defaults import IMAGENET_MEAN, IMAGENET_STD, Triple
from app.runtimes.onnxruntime.images.resampling import Interpolation, pillow_filter
from tasks.task import TaskType

__all__ = ("NO_HINTS", "Hints", "processor_hints", "processor_size", "timm_hints")

_BYTE = 1 / 255
_ZEROS: Triple = (0.0, 0.0, 0.0)
_ONES: Triple = (1.0, 1.0, 1.0)
_STRETCH_FROM = 384
"""From this size, processors with a crop_pct stretch instead of cropping (transformers, ConvNextImageProcessor)."""

_TIMM_RESIZES: dict[str, Resize] = {"center": "crop", "squash": "stretch", "border": "letterbox"}
"""``crop_mode`` of timm's ``create_transform``."""
_YOLOS_PATCH = 16
"""YOLOS truncates sides to multiples of this (``mod_size`` in its processors)."""
_TIMM_CROP_PCT = 0.875
"""The default of timm's ``resolve_data_config``."""


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """The preprocessing in one file; None or 0 for undeclared fields. The fields are those of `Preprocessing`.

    Attributes:
        origin: the file.
        resize: see `Preprocessing`.
        interpolation: see `Preprocessing`; files that declare one are for Pillow, which antialiases.
        dynamic_size: see `Preprocessing`.
        shorter_side: see `Preprocessing`.
        crop_fraction: fraction of the resized image that is kept; an alternative to `shorter_side`.
        scale: see `Preprocessing`.
        mean: see `Preprocessing`.
        std: see `Preprocessing`.
        bgr: see `Preprocessing`.
        crop_half_even: see `Preprocessing`.
    """

    origin: Origin
    resize: Resize | None = None
    interpolation: Interpolation | None = None
    dynamic_size: DynamicSize | None = None
    shorter_side: int = 0
    crop_fraction: float | None = None
    scale: float | None = None
    mean: Triple | None = None
    std: Triple | None = None
    bgr: bool | None = None
    crop_half_even: bool = True


NO_HINTS = Hints(origin=Origin.GUESSED)


def timm_hints(config: Config | None) -> Hints | None:
    """Return the hints of timm's ``pretrained_cfg``. timm always uses RGB pixels in 0..1."""
    declared = config.pretrained_cfg if config else None
    if declared is None:
        return None
    return Hints(
        origin=Origin.CONFIG,
        resize=_TIMM_RESIZES.get(declared.crop_mode or "center"),
        interpolation=_timm_interpolation(declared.interpolation),
        crop_fraction=declared.crop_pct if declared.crop_pct and 0 < declared.crop_pct <= 1 else _TIMM_CROP_PCT,
        scale=_BYTE,
        mean=declared.mean or IMAGENET_MEAN,
        std=declared.std or IMAGENET_STD,
        bgr=False,
    )


def _timm_interpolation(name: str | None) -> Interpolation:
    # timm resolves `random` to bilinear for evaluation.
    return "bicubic" if name is None else pillow_filter(name) or "bilinear"


def processor_hints(processor: Preprocessor | None, task_type: TaskType) -> Hints | None:
    """Return the hints of ``preprocessor_config.json``."""
    if processor is None:
        return None
    unnormalised = processor.do_normalize is False
    dynamic_size = _edge_limits(processor) if task_type is not TaskType.IMAGE_CLASSIFICATION else None
    return Hints(
        origin=Origin.PREPROCESSOR,
        resize="stretch" if dynamic_size is not None else _resize(processor),
        interpolation=pillow_filter(processor.resample) or "bilinear",
        dynamic_size=dynamic_size,
        shorter_side=0 if dynamic_size is not None else _shorter_side(processor),
        scale=_scale(processor),
        mean=_ZEROS if unnormalised else processor.image_mean,
        std=_ONES if unnormalised else processor.image_std,
        bgr=bool(processor.do_flip_channel_order),
        crop_half_even=False,
    )


def processor_size(processor: Preprocessor | None) -> tuple[int, int] | None:
    """Return the (height, width) of the processor's output, pixels; a square of the shorter side if sizes differ."""
    if processor is None:
        return None
    chosen = processor.crop_size if processor.do_center_crop and processor.crop_size is not None else processor.size
    if isinstance(chosen, Size):
        return chosen.sides or _square(chosen.shortest_edge)
    return _square(chosen)


def _edge_limits(processor: Preprocessor) -> EdgeLimits | None:
    """Return the size rule of DETR, which has both edges; classifiers that crop have only the shorter one."""
    size = processor.size
    if not isinstance(size, Size) or size.shortest_edge is None or size.longest_edge is None:
        return None
    floor = _YOLOS_PATCH if (processor.image_processor_type or "").startswith("Yolos") else 1
    return EdgeLimits(shortest=size.shortest_edge, longest=size.longest_edge, floor=floor)


def _scale(processor: Preprocessor) -> float:
    if processor.do_rescale is False:
        return 1.0
    return _BYTE if processor.rescale_factor is None else processor.rescale_factor


def _resize(processor: Preprocessor) -> Resize:
    size = processor.size
    edge = size.shortest_edge if isinstance(size, Size) else None
    if edge is not None and not processor.do_center_crop and processor.crop_pct is not None and edge >= _STRETCH_FROM:
        return "stretch"
    return "crop" if edge is not None else "stretch"


def _shorter_side(processor: Preprocessor) -> int:
    size = processor.size
    if not isinstance(size, Size):
        return size or 0
    if size.sides is not None:
        return min(size.sides)
    if size.shortest_edge is None or processor.crop_pct is None or size.shortest_edge >= _STRETCH_FROM:
        return size.shortest_edge or 0
    return floor(size.shortest_edge / processor.crop_pct)


def _square(side: int | None) -> tuple[int, int] | None:
    return None if side is None else (side, side)
