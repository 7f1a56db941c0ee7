"""Read preprocessing from the configuration files of transformers and timm."""

from math import floor

import msgspec

from app.engine.model_metadata import Origin
from app.runtimes.onnxruntime.dynamic_input import DynamicSize, EdgeLimits
from app.runtimes.onnxruntime.hugging_face_files import Config, Preprocessor, Size
from app.runtimes.onnxruntime.placement import Resize
from app.runtimes.onnxruntime.preprocessing_defaults import Triple
from tasks.task import TaskType

__all__ = ("NO_HINTS", "Hints", "processor_hints", "processor_size", "timm_hints")

_BYTE = 1 / 255
_ZEROS: Triple = (0.0, 0.0, 0.0)
_ONES: Triple = (1.0, 1.0, 1.0)
_STRETCH_FROM = 384
"""From this size, processors with a crop_pct stretch instead of cropping (transformers, ConvNextImageProcessor)."""

_TIMM_RESIZES: dict[str, Resize] = {"center": "crop", "squash": "stretch", "border": "letterbox"}
"""``crop_mode`` of timm's ``create_transform``."""


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """The preprocessing in one file; None or 0 for undeclared fields. The fields are those of `Preprocessing`.

    Attributes:
        origin: the file.
        resize: see `Preprocessing`.
        dynamic_size: see `Preprocessing`.
        shorter_side: see `Preprocessing`.
        crop_fraction: fraction of the resized image that is kept; an alternative to `shorter_side`.
        scale: see `Preprocessing`.
        mean: see `Preprocessing`.
        std: see `Preprocessing`.
        bgr: see `Preprocessing`.
    """

    origin: Origin
    resize: Resize | None = None
    dynamic_size: DynamicSize | None = None
    shorter_side: int = 0
    crop_fraction: float | None = None
    scale: float | None = None
    mean: Triple | None = None
    std: Triple | None = None
    bgr: bool | None = None


NO_HINTS = Hints(origin=Origin.GUESSED)


def timm_hints(config: Config | None) -> Hints | None:
    """Return the hints of timm's ``pretrained_cfg``. timm always uses RGB pixels in 0..1."""
    declared = config.pretrained_cfg if config else None
    if declared is None:
        return None
    return Hints(
        origin=Origin.CONFIG,
        resize=_TIMM_RESIZES.get(declared.crop_mode or "center"),
        crop_fraction=declared.crop_pct if declared.crop_pct and 0 < declared.crop_pct <= 1 else None,
        scale=_BYTE,
        mean=declared.mean,
        std=declared.std,
        bgr=False,
    )


def processor_hints(processor: Preprocessor | None, task_type: TaskType) -> Hints | None:
    """Return the hints of ``preprocessor_config.json``."""
    if processor is None:
        return None
    unnormalised = processor.do_normalize is False
    dynamic_size = _edge_limits(processor.size) if task_type is not TaskType.IMAGE_CLASSIFICATION else None
    return Hints(
        origin=Origin.PREPROCESSOR,
        resize="stretch" if dynamic_size is not None else _resize(processor),
        dynamic_size=dynamic_size,
        shorter_side=0 if dynamic_size is not None else _shorter_side(processor),
        scale=_scale(processor),
        mean=_ZEROS if unnormalised else processor.image_mean,
        std=_ONES if unnormalised else processor.image_std,
        bgr=bool(processor.do_flip_channel_order),
    )


def processor_size(processor: Preprocessor | None) -> tuple[int, int] | None:
    """Return the (height, width) of the processor's output, pixels; a square of the shorter side if sizes differ."""
    if processor is None:
        return None
    chosen = processor.crop_size if processor.do_center_crop and processor.crop_size is not None else processor.size
    if isinstance(chosen, Size):
        return chosen.sides or _square(chosen.shortest_edge)
    return _square(chosen)


def _edge_limits(size: int | Size | None) -> EdgeLimits | None:
    """Return the size rule of DETR, which has both edges; classifiers that crop have only the shorter one."""
    if not isinstance(size, Size) or size.shortest_edge is None or size.longest_edge is None:
        return None
    return EdgeLimits(shortest=size.shortest_edge, longest=size.longest_edge)


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
