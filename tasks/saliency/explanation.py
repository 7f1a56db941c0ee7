"""Parameters and results of explanations."""

from enum import StrEnum
from typing import Annotated

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.request import Positive
from tasks.inference.response import Record

DEFAULT_SAMPLES = 400


class ExplanationMethod(StrEnum):
    """The method that creates the masks.

    RISE draws random masks (Petsiuk, Das, Saenko 2018; for objects D-RISE, Petsiuk et al. 2021). OCCLUSION slides a
    window over the image (Zeiler and Fergus 2014).
    """

    RISE = "rise"
    OCCLUSION = "occlusion"


class ExplanationParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a request for explanations.

    Attributes:
        method: the method that creates the masks.
        samples: masked copies of each image. By default `DEFAULT_SAMPLES`, or fewer if the server's limit divided by
            the number of images is lower. OCCLUSION ignores it and derives the number from `grid`.
        grid: cells along the longer side of the image, the resolution of the masks. The window of OCCLUSION is two
            cells wide and moves by one.
        seed: seed of the random masks; the same seed gives the same explanation.
        label: the class to explain. By default the best class, or all classes of objects.
        max_objects: maximum number of explained objects in an image; those with the highest scores are used.
        max_seconds: time after which the explanation ends with the samples so far; the server's limit also applies.
    """

    method: ExplanationMethod = ExplanationMethod.RISE
    samples: Positive | None = None
    grid: Annotated[int, msgspec.Meta(ge=2, le=32)] = 8
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    label: str | None = None
    max_objects: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    max_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The saliency map of one prediction in an image.

    Attributes:
        label: the class, or the answer.
        score: the model's score on the unmasked image, 0..1; the log-likelihood of an answer, in nats.
        record: the record of the prediction in the answer, with its box or contour.
        coarse: (rows, columns) float32, 0..1: the saliency at the resolution of the masks. All zero if no part of the
            image changed the score.
        width: width of the upright original image in pixels.
        height: height of the upright original image in pixels.
        method: the method that created the masks.
        samples: masked copies that the model processed; fewer than requested if time ran out.
        seed: seed of the masks.
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
        """Return (height, width) float32, 0..1, over the upright original image. Not cached: it may be large."""
        enlarged = cv2.resize(self.coarse, (self.width, self.height), interpolation=cv2.INTER_LINEAR)
        return np.asarray(enlarged, np.float32)
