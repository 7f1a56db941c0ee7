"""Explain predictions for an image: run the model on many masked copies, and compute saliency maps."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.explanations.masks import (
    Mask,
    WeightedMasks,
    normalize,
    occlusion_masks,
    random_masks,
    window_count,
)
from tasks.inference.request import Positive
from tasks.inference.response import Record
from tasks.task import ExplainableTask
from tasks.vision.filtering import SCORE_DECIMALS
from tasks.vision.image import Image

DEFAULT_SAMPLES = 400

MAX_SIDE = 1280
"""Larger images are downscaled once, because the model would do so for every masked copy."""

_CHUNK_PIXELS = 4_000_000
_MAX_CHUNK_SIZE = 16

Pixels = NDArray[np.uint8]


class ExplanationMethod(StrEnum):
    """The method that creates the masks.

    RISE draws random masks (Petsiuk, Das, Saenko 2018; for objects D-RISE, Petsiuk et al. 2021). OCCLUSION slides a
    window over the image (Zeiler and Fergus 2014).
    """

    RISE = "rise"
    OCCLUSION = "occlusion"


class ExplanationParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a request for explanations of images.

    Attributes:
        label: the class to explain. By default the best class, or all classes of objects.
        max_objects: maximum number of explained objects; those with the highest scores are used.
        max_seconds: time after which the explanation ends with the samples so far; the server's limit also applies.
        method: the method that creates the masks.
        samples: masked copies of each image. By default `DEFAULT_SAMPLES`, or fewer if the server's limit divided by
            the number of images is lower. OCCLUSION ignores it and derives the number from `grid`.
        grid: cells along the longer side of the image, the resolution of the masks. The window of OCCLUSION is two
            cells wide and moves by one.
        seed: seed of the random masks; the same seed gives the same explanation.
    """

    label: str | None = None
    max_objects: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    max_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    method: ExplanationMethod = ExplanationMethod.RISE
    samples: Positive | None = None
    grid: Annotated[int, msgspec.Meta(ge=2, le=32)] = 8
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0


class Explanation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The saliency map of one prediction in an image, at the resolution of the masks: `coarse` (rows, columns), 0..1.

    `score` belongs to the unmasked image. `record` belongs to the prediction in the answer. `width` and `height` are
    those of the upright original image in pixels. The model processed `samples` masked copies: fewer than requested if
    time ran out.
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


class ExplanationTarget(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One image, and its K predictions to explain. `model` returns predictions for a batch."""

    task: ExplainableTask[Any]
    model: Callable[[Sequence[Any]], Sequence[Any]]
    item: Any
    predictions: Any

    @property
    def prediction_count(self) -> int:
        """Return the number of predictions to explain."""
        return len(self.predictions.labels)

    def scores(self, images: Sequence[Image], scale: float) -> NDArray[np.float32]:
        """Return (n, K), 0..1: the similarity of each target to the predictions for n other images.

        `scale` is their size relative to the original. Raise MODEL_FAILED if the model fails.
        """
        task: Any = self.task
        probes = [task.probe(self.item, image, self.predictions) for image in images]
        outputs = self.model(probes)
        found = [task.postprocess(probe, output) for probe, output in zip(probes, outputs, strict=True)]
        return np.stack([task.similarity(self.predictions, predictions, scale) for predictions in found])


def sample_count(target: ExplanationTarget, parameters: ExplanationParameters, default: int) -> int:
    """Return the number of masked copies of one image that `parameters` require; `default` if they set none."""
    if parameters.method is ExplanationMethod.OCCLUSION:
        return window_count(*_cells(parameters, target.item.image))
    return parameters.samples or default


def explain_target(
    target: ExplanationTarget,
    parameters: ExplanationParameters,
    samples: int,
    should_continue: Callable[[], bool],
) -> list[Explanation]:
    """Explain each prediction for one image by the given number of masked copies; fewer if `should_continue` ends it.

    Memory holds one chunk of a few masked copies, regardless of the number of samples. Raise MODEL_FAILED if the model
    fails on a masked copy.
    """
    if not target.prediction_count:
        return []
    image: Image = target.item.image
    masks = islice(masks_for(parameters, image), samples)
    weighted_masks = WeightedMasks(hides=parameters.method is ExplanationMethod.OCCLUSION)
    downscaled, scale = _downscale(image.pixels)
    chunk_size = max(1, min(_MAX_CHUNK_SIZE, _CHUNK_PIXELS // (downscaled.shape[0] * downscaled.shape[1])))
    # RISE uses black. In a bright image a black region is itself a feature, whereas the mean colour is neutral.
    backdrop = np.empty_like(downscaled)
    backdrop[:] = np.rint(downscaled.mean(axis=(0, 1)))
    while drawn := list(islice(masks, chunk_size)):
        copies = [Image(apply_mask(downscaled, mask, backdrop)) for mask in drawn]
        weighted_masks.add(np.stack(drawn), target.scores(copies, scale))
        if not should_continue():
            break
    predictions, saliency = target.predictions, weighted_masks.mean()
    return [
        Explanation(
            label=label,
            score=round(float(score), SCORE_DECIMALS),
            record=record,
            coarse=normalize(coarse),
            width=image.width,
            height=image.height,
            method=parameters.method,
            samples=weighted_masks.samples,
            seed=parameters.seed,
        )
        for label, score, record, coarse in zip(
            predictions.labels, predictions.scores, predictions.records(), saliency, strict=True
        )
    ]


def apply_mask(pixels: Pixels, mask: NDArray[np.float32], backdrop: Pixels) -> Pixels:
    """Return (height, width, 3) pixels in which `backdrop` of that shape replaces those that the mask hides.

    The mask is (rows, columns), 0..1, over the whole image.
    """
    # uint8 is six times as fast as floating point, and rounding errors of one level do not matter.
    levels = cv2.resize(np.rint(mask * 255).astype(np.uint8), pixels.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    weights = cv2.merge((levels, levels, levels))
    blended = cv2.add(
        cv2.multiply(pixels, weights, scale=1 / 255), cv2.multiply(backdrop, 255 - weights, scale=1 / 255)
    )
    return np.asarray(blended, np.uint8)


def _downscale(pixels: Pixels) -> tuple[Pixels, float]:
    scale = MAX_SIDE / max(pixels.shape[:2])
    if scale >= 1:
        return pixels, 1.0
    size = (max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8), scale


def masks_for(parameters: ExplanationParameters, image: Image) -> Iterator[Mask]:
    """Yield the masks for an image. Those of OCCLUSION end; a score is lost by what they hide."""
    masks = occlusion_masks if parameters.method is ExplanationMethod.OCCLUSION else random_masks
    return masks(*_cells(parameters, image), parameters.seed)


def _cells(parameters: ExplanationParameters, image: Image) -> tuple[int, int]:
    """Return the rows and columns of nearly square cells, `grid` of them along the longer side."""
    longer = max(image.width, image.height)
    rows, columns = (max(1, round(parameters.grid * side / longer)) for side in (image.height, image.width))
    return rows, columns
