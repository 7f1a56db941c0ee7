"""What may be asked of an explanation, and what it says."""

from enum import StrEnum
from typing import Annotated

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.parameters import Positive
from tasks.exchange.response import Record

__all__ = ("DEFAULT_SAMPLES", "Explanation", "ExplanationMethod", "ExplanationParameters")

DEFAULT_SAMPLES = 400


class ExplanationMethod(StrEnum):
    """How the masks are made that the model is shown the picture through.

    RISE takes random ones (Petsiuk, Das, Saenko 2018; for objects D-RISE, Petsiuk et al. 2021). OCCLUSION slides a
    window over the picture (Zeiler and Fergus 2014).
    """

    RISE = "rise"
    OCCLUSION = "occlusion"


class ExplanationParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a request for explanations.

    Attributes:
        method: how the masks are made.
        samples: masked copies of each image that the model is shown. By default `DEFAULT_SAMPLES`, or as many as the
            server's limit leaves for each image. Not read by OCCLUSION, where it follows from `grid`.
        grid: cells along the longer side of the image: the finest detail that the masks have. OCCLUSION's window is two
            cells wide and moves by one.
        seed: of the random masks; the same seed gives the same explanation.
        label: the class to explain. By default the best one, or with objects every class.
        max_objects: at most so many objects of an image are explained, the best ones.
        max_seconds: stop after so long with the samples taken by then; the server's own limit holds too.
    """

    method: ExplanationMethod = ExplanationMethod.RISE
    samples: Positive | None = None
    grid: Annotated[int, msgspec.Meta(ge=2, le=32)] = 8
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    label: str | None = None
    max_objects: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    max_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Where in an image the reason for one finding lies.

    Attributes:
        label: the class.
        score: that the model gave to it on the whole image, 0..1.
        record: the finding as it stands in the answer, with the box or the contour that tells it from others.
        coarse: (rows, columns) float32, 0..1: the saliency at the resolution at which it was computed. All zero where
            no part of the image made a difference.
        width: of the upright original image, pixels.
        height: of the upright original image, pixels.
        method: how it was found.
        samples: masked copies of the image that the model was shown; fewer than asked for where time ran out.
        seed: of the masks.
    """

    label: str
    score: float
    record: Record
    coarse: NDArray[np.float32]
    width: int
    height: int
    method: ExplanationMethod
    samples: int
    seed: int

    @property
    def saliency(self) -> NDArray[np.float32]:
        """(height, width) float32, 0..1, over the upright original image. Made anew each time: it may be large."""
        enlarged = cv2.resize(self.coarse, (self.width, self.height), interpolation=cv2.INTER_LINEAR)
        return np.asarray(enlarged, np.float32)
