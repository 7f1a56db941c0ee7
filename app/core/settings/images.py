"""Limits on images: of the server, and of commands that run a model on images."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from app.core.settings.environment import LIMITS, environment
from tasks.inference.limits import Limits


@Parameter(name="*", group=LIMITS)
@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """Limits on images."""

    max_pixels: Annotated[PositiveInt, environment("CHARIOTEER_MAX_PIXELS")] = 64_000_000
    """Maximum number of pixels of an image, read from its header before it is decoded."""

    allow_avif_jpeg2000: Annotated[bool, environment("CHARIOTEER_ALLOW_AVIF_JPEG2000")] = False
    """Decode AVIF and JPEG 2000 images too; their decoders limit their own memory, the server does not."""


def image_limits(images: ImageSettings) -> Limits:
    """Return the limits of a command: a request of its own has one image, which may have all the pixels."""
    max_request_pixels = max(Limits().max_request_pixels, images.max_pixels)
    return Limits(
        max_pixels=images.max_pixels,
        max_request_pixels=max_request_pixels,
        allow_avif_jpeg2000=images.allow_avif_jpeg2000,
    )
