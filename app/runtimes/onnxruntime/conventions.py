"""How the models of one layout want their pictures, where their files do not say so."""

import msgspec

from app.engine.description import Origin
from app.runtimes.onnxruntime.elastic import Elastic
from app.runtimes.onnxruntime.placement import Resize

__all__ = ("IMAGENET_MEAN", "IMAGENET_STD", "NO_CONVENTIONS", "Conventions", "Triple")

Triple = tuple[float, float, float]
"""A number for each of R, G, B."""

IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)


class Conventions(msgspec.Struct, frozen=True, kw_only=True):
    """None where models of the layout differ. The fields are those of `app.runtimes.onnxruntime.preprocessing`.

    Attributes:
        size: (height, width), pixels.
        resize: as that of `Preprocessing`, as are those that follow.
        elastic: for graphs that take any size.
        fill: see `Preprocessing`.
        scale: see `Preprocessing`.
        mean: see `Preprocessing`.
        std: see `Preprocessing`.
        bgr: see `Preprocessing`.
        origin: CONVENTION when the layout is that of one exporter, GUESSED when its models are known to differ.
    """

    size: tuple[int, int] | None = None
    resize: Resize | None = None
    elastic: Elastic | None = None
    fill: int | None = None
    scale: float | None = None
    mean: Triple | None = None
    std: Triple | None = None
    bgr: bool | None = None
    origin: Origin = Origin.CONVENTION


NO_CONVENTIONS = Conventions()
