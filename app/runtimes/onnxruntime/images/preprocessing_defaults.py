"""Default preprocessing of the models of a layout, used if their files do not declare it."""

import msgspec

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.images.dynamic_input import DynamicSize
from app.runtimes.onnxruntime.images.placement import BoxScale, Resize
from app.runtimes.onnxruntime.images.resampling import Antialias, Interpolation

__all__ = ("IMAGENET_MEAN", "IMAGENET_STD", "NO_DEFAULTS", "PreprocessingDefaults", "Triple")

Triple = tuple[float, float, float]
"""One value each for R, G and B."""

IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)


class PreprocessingDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of a layout; None if its models differ. The fields are those of `Preprocessing`.

    Attributes:
        size: (height, width), pixels.
        resize: see `Preprocessing`.
        interpolation: see `Preprocessing`.
        antialias: see `Preprocessing`.
        dynamic_size: for graphs that accept any size.
        fill: see `Preprocessing`.
        scale: see `Preprocessing`.
        mean: see `Preprocessing`.
        std: see `Preprocessing`.
        bgr: see `Preprocessing`.
        box_scale: see `Preprocessing`.
        resizes_floats: see `Preprocessing`.
        origin: CONVENTION if one exporter uses the layout, GUESSED if its models are known to differ.
    """

    size: tuple[int, int] | None = None
    resize: Resize | None = None
    interpolation: Interpolation | None = None
    antialias: Antialias | None = None
    dynamic_size: DynamicSize | None = None
    fill: int | None = None
    scale: float | None = None
    mean: Triple | None = None
    std: Triple | None = None
    bgr: bool | None = None
    box_scale: BoxScale | None = None
    resizes_floats: bool = False
    origin: Origin = Origin.CONVENTION


NO_DEFAULTS = PreprocessingDefaults()
