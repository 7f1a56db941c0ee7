"""Read preprocessing from the configuration files of transformers and timm."""

from math import floor

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.files.hugging_face_files import Config, Preprocessor, Size
from app.runtimes.onnxruntime.images.dynamic_input import EdgeLimits
from app.runtimes.onnxruntime.images.placement import Resize
from app.runtimes.onnxruntime.images.preprocessing import (
    BYTE,
    IMAGENET_MEAN,
    IMAGENET_STD,
    ONES,
    ZEROS,
    PartialPreprocessing,
)
from app.runtimes.onnxruntime.images.resampling import pillow_filter
from tasks.task import TaskType

_STRETCH_FROM = 384
"""From this size, processors with a crop_pct stretch instead of cropping (transformers, ConvNextImageProcessor)."""

_TIMM_RESIZES: dict[str, Resize] = {"center": "crop", "squash": "stretch", "border": "letterbox"}
"""``crop_mode`` of timm's ``create_transform``."""
_YOLOS_PATCH = 16
"""YOLOS truncates sides to multiples of this (``mod_size`` in its processors)."""
_TIMM_CROP_PCT = 0.875
"""The default of timm's ``resolve_data_config``."""


def timm_preprocessing(config: Config | None) -> PartialPreprocessing | None:
    """Return the preprocessing of timm's ``pretrained_cfg``. timm always uses Pillow, and RGB pixels in 0..1."""
    declared = config.pretrained_cfg if config else None
    if declared is None:
        return None
    # timm resolves `random` to bilinear for evaluation.
    interpolation = "bicubic" if declared.interpolation is None else pillow_filter(declared.interpolation) or "bilinear"
    return PartialPreprocessing(
        origin=Origin.CONFIG,
        resize=_TIMM_RESIZES.get(declared.crop_mode or "center"),
        interpolation=interpolation,
        antialias=True,
        crop_fraction=declared.crop_pct if declared.crop_pct and 0 < declared.crop_pct <= 1 else _TIMM_CROP_PCT,
        scale=BYTE,
        mean=declared.mean or IMAGENET_MEAN,
        std=declared.std or IMAGENET_STD,
        channel_order="RGB",
    )


def processor_preprocessing(processor: Preprocessor | None, task_type: TaskType) -> PartialPreprocessing | None:
    """Return the preprocessing of ``preprocessor_config.json``, which is for Pillow."""
    if processor is None:
        return None
    unnormalised = processor.do_normalize is False
    scale = BYTE if processor.rescale_factor is None else processor.rescale_factor
    dynamic_size = _edge_limits(processor) if task_type is not TaskType.IMAGE_CLASSIFICATION else None
    return PartialPreprocessing(
        origin=Origin.PREPROCESSOR,
        resize="stretch" if dynamic_size is not None or _stretches(processor) else "crop",
        interpolation=pillow_filter(processor.resample) or "bilinear",
        antialias=True,
        dynamic_size=dynamic_size,
        shorter_side=0 if dynamic_size is not None else _shorter_side(processor),
        scale=1.0 if processor.do_rescale is False else scale,
        mean=ZEROS if unnormalised else processor.image_mean,
        std=ONES if unnormalised else processor.image_std,
        channel_order="BGR" if processor.do_flip_channel_order else "RGB",
        crop_half_even=False,
    )


def processor_size(processor: Preprocessor | None) -> tuple[int, int] | None:
    """Return the (height, width) of the processor's output, pixels; a square of the shorter side if sizes differ."""
    if processor is None:
        return None
    cropped = processor.do_center_crop and processor.crop_size is not None
    size = _as_size(processor.crop_size if cropped else processor.size)
    return size.sides or (None if size.shortest_edge is None else (size.shortest_edge, size.shortest_edge))


def _edge_limits(processor: Preprocessor) -> EdgeLimits | None:
    """Return the size rule of DETR, which has both edges; classifiers that crop have only the shorter one."""
    size = _as_size(processor.size)
    if size.shortest_edge is None or size.longest_edge is None:
        return None
    floor = _YOLOS_PATCH if (processor.image_processor_type or "").startswith("Yolos") else 1
    return EdgeLimits(shortest=size.shortest_edge, longest=size.longest_edge, floor=floor)


def _stretches(processor: Preprocessor) -> bool:
    edge = _as_size(processor.size).shortest_edge
    return edge is None or (not processor.do_center_crop and processor.crop_pct is not None and edge >= _STRETCH_FROM)


def _shorter_side(processor: Preprocessor) -> int:
    size = _as_size(processor.size)
    if size.sides is not None:
        return min(size.sides)
    edge = size.shortest_edge or 0
    return edge if processor.crop_pct is None or edge >= _STRETCH_FROM else floor(edge / processor.crop_pct)


def _as_size(size: int | Size | None) -> Size:
    return size if isinstance(size, Size) else Size(height=size, width=size)
