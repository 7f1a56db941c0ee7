"""Read the preprocessing and labels in Hugging Face files: ``config.json`` and ``preprocessor_config.json``.

The fields are those that ``save_pretrained`` of transformers and timm writes. Unknown fields are ignored.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from app.core.removed import removed_advice
from app.core.runtimes.onnxruntime.images.preprocessing import (
    BYTE,
    IMAGENET_MEAN,
    IMAGENET_STD,
    MIN_SIDE,
    ONES,
    ZEROS,
    PartialPreprocessing,
    Resize,
    Triple,
    as_triple,
    pillow_filter,
)
from app.core.settings.model import read_json_file
from metadata.model import Origin
from tasks.task import TaskType

T = TypeVar("T")

_STRETCH_FROM = 384
"""From this size, processors with a crop_pct stretch instead of cropping (transformers, ConvNextImageProcessor)."""

_TIMM_RESIZES: dict[str, Resize] = {"center": "crop", "squash": "stretch", "border": "letterbox"}
"""``crop_mode`` of timm's ``create_transform``."""
_YOLOS_PATCH = 16
"""YOLOS truncates sides to multiples of this (``mod_size`` in its processors)."""
_LEVIT_SCALE = 256 / 224
"""LeViT resizes the shorter side to a multiple of its declared length."""
_EDGE_PROCESSORS = (
    "Bit", "ChineseCLIP", "CLIP", "ConvNext", "Levit", "Llava", "MobileNetV", "MobileViT", "PoolFormer", "Siglip",
)  # fmt: skip
_DETR_PROCESSORS = ("ConditionalDetr", "DeformableDetr", "Detr", "GroundingDino", "Yolos")
"""Classes for which a size that is a number is the length of the shorter side, without and with a limit."""
_DETR_LONGEST = 1333
_TIMM_CROP_PCT = 0.875
"""The default of timm's ``resolve_data_config``."""

_REMOVED = {"SequenceClassification": "TEXT_CLASSIFICATION", "TokenClassification": "TOKEN_CLASSIFICATION"}

Side = Annotated[int, msgspec.Meta(ge=1, le=16384)]
"""Pixels."""


class EdgeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Resize the shorter side to a length, with a limit for the longer side, in pixels, as image processors of DETR do.

    No side is shorter than 32. Both sides are truncated to a multiple of `floor`, as YOLOS does.
    """

    shortest: int
    longest: int
    floor: int = 1

    def __str__(self) -> str:
        rounded = f", to multiples of {self.floor}" if self.floor > 1 else ""
        return f"shorter side to {self.shortest}, longer to at most {self.longest}{rounded}"

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        shorter, longer = min(height, width), max(height, width)
        scaled = float(self.shortest)
        if longer / shorter * scaled > self.longest:
            scaled = self.longest * shorter / longer
        # The sides are rounded as in ``get_size_with_aspect_ratio`` of transformers.
        sides = (round(scaled), int(scaled * longer / shorter))
        short, long = (max(MIN_SIDE, side - side % self.floor) for side in sides)
        return (short, long) if height <= width else (long, short)


class TimmPreprocessing(msgspec.Struct, frozen=True, kw_only=True):
    """The preprocessing fields of ``pretrained_cfg`` in timm's ``config.json``; sizes are (channels, height, width).

    The resized image is cropped to `crop_pct`. Of `crop_mode`, `center` keeps the aspect ratio, `squash` does not, and
    `border` pads.
    """

    input_size: tuple[int, int, int] | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    crop_pct: float | None = None
    crop_mode: str | None = None
    interpolation: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of ``config.json``."""

    model_type: str | None = None
    architectures: tuple[str, ...] | None = None
    problem_type: str | None = None
    label_names: list[str] | None = None
    pretrained_cfg: TimmPreprocessing | None = None
    num_classes: object = None
    id2label: dict[str, str] | None = None
    # Not `Side`: msgspec 0.22 crashes in the garbage collector for a union of a constrained number and a tuple.
    image_size: int | tuple[int, int] | None = None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Return class names by class number; None if the numbers are not 0, 1, ..."""
        if not self.id2label:
            return tuple(self.label_names) if self.label_names else None
        names = [self.id2label.get(str(number)) for number in range(len(self.id2label))]
        return tuple(name for name in names if name is not None) if None not in names else None

    @property
    def size(self) -> tuple[int, int] | None:
        """Return the (height, width) of the input, pixels."""
        if self.pretrained_cfg is not None and self.pretrained_cfg.input_size is not None:
            return self.pretrained_cfg.input_size[1:]
        return (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """A size in either of the two forms of transformers, pixels."""

    height: Side | None = None
    width: Side | None = None
    shortest_edge: Side | None = None
    longest_edge: Side | None = None

    @property
    def sides(self) -> tuple[int, int] | None:
        """Return (height, width) if both are declared."""
        return None if self.height is None or self.width is None else (self.height, self.width)


class Preprocessor(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of ``preprocessor_config.json``. None stands for the default of the processor class."""

    image_processor_type: str | None = None
    feature_extractor_type: str | None = None
    resample: int | str | None = None
    size: Side | Size | None = None
    max_size: object = None
    crop_pct: Annotated[float, msgspec.Meta(ge=0.1)] | None = None
    do_center_crop: bool | None = None
    crop_size: Side | Size | None = None
    do_rescale: bool | None = None
    rescale_factor: float | None = None
    do_normalize: bool | None = None
    image_mean: Triple | float | None = None
    image_std: Triple | float | None = None
    do_flip_channel_order: bool | None = None

    @property
    def class_name(self) -> str:
        """Return the class of the processor; "" if the file does not name it."""
        return self.image_processor_type or self.feature_extractor_type or ""

    @property
    def resized(self) -> Size:
        """Return the size before a crop."""
        if isinstance(self.size, int) and self.class_name.startswith(_DETR_PROCESSORS):
            longest = self.max_size if isinstance(self.max_size, int) else _DETR_LONGEST
            return Size(shortest_edge=self.size, longest_edge=longest)
        if isinstance(self.size, int) and self.class_name.startswith(_EDGE_PROCESSORS):
            return Size(shortest_edge=self.size)
        return _as_size(self.size)


def read_json(kind: type[T], *paths: Path) -> T | None:
    """Read the first of these files that exists; None without one. Raise ModelError if it cannot be parsed."""
    path = next((path for path in paths if path.is_file()), None)
    return None if path is None else read_json_file(path, kind, non_finite=True)


def timm_preprocessing(config: Config) -> PartialPreprocessing | None:
    """Return the preprocessing of timm's ``pretrained_cfg``. timm always uses Pillow, and RGB pixels in 0..1."""
    declared = config.pretrained_cfg
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
    size, crop_pct = processor.resized, processor.crop_pct
    edge, dynamic_size, shorter_side = size.shortest_edge, None, min(size.sides or (0,))
    stretches = edge is None
    if edge is not None and size.longest_edge is not None and task_type is not TaskType.IMAGE_CLASSIFICATION:
        # DETR declares both edges; classifiers that crop have only the shorter one.
        floor = _YOLOS_PATCH if processor.class_name.startswith("Yolos") else 1
        dynamic_size, stretches = EdgeLimits(shortest=edge, longest=size.longest_edge, floor=floor), True
    elif edge is not None and crop_pct is not None and edge < _STRETCH_FROM:
        shorter_side = int(edge / crop_pct)
    elif edge is not None:
        shorter_side = int(edge * _LEVIT_SCALE) if processor.class_name.startswith("Levit") else edge
        stretches = crop_pct is not None and not processor.do_center_crop
    return PartialPreprocessing(
        origin=Origin.PREPROCESSOR,
        resize="stretch" if stretches else "crop",
        interpolation=pillow_filter(processor.resample) or "bilinear",
        antialias=True,
        dynamic_size=dynamic_size,
        shorter_side=shorter_side,
        scale=1.0 if processor.do_rescale is False else scale,
        mean=ZEROS if unnormalised else as_triple(processor.image_mean),
        std=ONES if unnormalised else as_triple(processor.image_std),
        channel_order="BGR" if processor.do_flip_channel_order else "RGB",
        crop="transformers",
    )


def processor_size(processor: Preprocessor | None) -> tuple[int, int] | None:
    """Return the (height, width) of the processor's output, pixels; a square of the shorter side if sizes differ."""
    if processor is None:
        return None
    cropped = processor.do_center_crop and processor.crop_size is not None
    size = _as_size(processor.crop_size) if cropped else processor.resized
    return size.sides or (None if size.shortest_edge is None else (size.shortest_edge, size.shortest_edge))


def removed_task(architectures: Sequence[str]) -> str:
    """Return what to use instead of the task type of 0.2 for one of these classes of transformers; "" for others."""
    kinds = [name.rpartition("For")[2] for name in architectures]
    names = [f"task type {_REMOVED[kind]}" for kind in kinds if kind in _REMOVED]
    return f"the {removed_advice(*names)}" if names else ""


def _as_size(size: int | Size | None) -> Size:
    """Return the size; a number is the length of both sides."""
    return size if isinstance(size, Size) else Size(height=size, width=size)
