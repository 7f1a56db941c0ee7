"""Showing a model one picture through many masks."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.response import Prediction
from tasks.explanation.combination import WeightedMasks, unit_range
from tasks.explanation.explanation import Explanation, ExplanationParameters
from tasks.explanation.masks import MaskSource, masks_for
from tasks.explanation.probe import ImageItem
from tasks.task import ExplainableTask, Task
from tasks.vision.image import Image
from tasks.vision.selection import SCORE_DECIMALS

__all__ = ("LONGEST_SIDE", "Subject", "hide", "sample_count", "sampled")

LONGEST_SIDE = 1280
"""Larger pictures are made smaller first, once: the model would do it to every masked copy."""

_CHUNK_PIXELS = 4_000_000
_LARGEST_CHUNK = 16

Pixels = NDArray[np.uint8]
InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)


class Subject(msgspec.Struct, Generic[InputT, PredictionT], frozen=True, kw_only=True, eq=False):
    """What is to be explained.

    Attributes:
        task: of the model.
        model: answers a batch.
        item: what the model was given, with an image.
        targets: the findings to explain.
    """

    task: Task[InputT, PredictionT]
    model: Callable[[Sequence[InputT]], Sequence[PredictionT]]
    item: InputT
    targets: PredictionT

    @property
    def image(self) -> Image:
        """The original."""
        return cast("ImageItem", self.item).image

    @property
    def count(self) -> int:
        """How many findings there are."""
        return len(cast("Any", self.targets).labels)

    def scores(self, copies: Sequence[Pixels], scale: float = 1.0) -> NDArray[np.float32]:
        """(n, findings) 0..1: how well each finding is found again in each of n altered copies of the image.

        Args:
            copies: pixels of the image, `scale` times as large.
            scale: 0..1.

        Raises:
            InferenceError: MODEL_FAILED when the model cannot answer.
        """
        task = cast("ExplainableTask[InputT, PredictionT]", self.task)
        probes = [task.probe(self.item, Image(pixels), self.targets) for pixels in copies]
        answers = zip(probes, self.model(probes), strict=True)
        seen = [self.task.refine(probe, answer) for probe, answer in answers]
        return np.stack([task.similarity(self.targets, each, scale) for each in seen])


def sample_count(image: Image, parameters: ExplanationParameters, default: int) -> int:
    """How many masked copies of one image `parameters` ask for; `default` where they leave it open."""
    return _masks(image, parameters).count or parameters.samples or default


def sampled(
    subject: Subject[InputT, PredictionT], parameters: ExplanationParameters, samples: int, go_on: Callable[[], bool]
) -> list[Explanation]:
    """Explain the findings in one image.

    Memory is bounded by a chunk of a few masked copies, whatever the number of samples.

    Args:
        subject: the model, the image and the findings.
        parameters: how.
        samples: masked copies to show the model.
        go_on: asked after each chunk whether to take another one.

    Returns:
        One explanation for each finding.

    Raises:
        InferenceError: MODEL_FAILED when the model cannot answer a masked copy.
    """
    image = subject.image
    masks = _masks(image, parameters)
    sums = WeightedMasks(subject.count, *masks.shape)
    smaller, scale = _reduced(image.pixels)
    chunk = max(1, min(_LARGEST_CHUNK, _CHUNK_PIXELS // (smaller.shape[0] * smaller.shape[1])))
    backdrop = _backdrop(smaller)
    while subject.count and sums.samples < samples:
        taken = masks.take(min(chunk, samples - sums.samples))
        copies = [hide(smaller, mask, backdrop) for mask in taken]
        sums.add(masks.told(taken), subject.scores(copies, scale))
        if not go_on():
            break
    saliency = masks.saliency(sums.mean())
    return _explanations(subject.targets, saliency, image, parameters, sums.samples)


def hide(pixels: Pixels, mask: NDArray[np.float32], backdrop: Pixels) -> Pixels:
    """A copy of a picture in which `backdrop` takes over where the mask does not keep the picture.

    Args:
        pixels: (height, width, 3).
        mask: (rows, columns), 0..1, over the whole of it.
        backdrop: (height, width, 3).
    """
    # In bytes, which is six times as fast as in floating point: a level more or less is no different picture.
    levels = cv2.resize(np.rint(mask * 255).astype(np.uint8), pixels.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    kept = cv2.merge((levels, levels, levels))
    shown = cv2.add(cv2.multiply(pixels, kept, scale=1 / 255), cv2.multiply(backdrop, 255 - kept, scale=1 / 255))
    return np.asarray(shown, np.uint8)


def _backdrop(pixels: Pixels) -> Pixels:
    """A picture of the same size that is all of the mean colour.

    RISE takes black. A hidden part should say nothing, and black in a bright picture is a thing of its own.
    """
    empty = np.empty_like(pixels)
    empty[:] = np.rint(pixels.mean(axis=(0, 1)))
    return empty


def _reduced(pixels: Pixels) -> tuple[Pixels, float]:
    scale = LONGEST_SIDE / max(pixels.shape[:2])
    if scale >= 1:
        return pixels, 1.0
    size = (max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8), scale


def _masks(image: Image, parameters: ExplanationParameters) -> MaskSource:
    return masks_for(parameters.method, image.width, image.height, parameters.grid, parameters.seed)


def _explanations(
    targets: Prediction,
    saliency: NDArray[np.float32],
    image: Image,
    parameters: ExplanationParameters,
    samples: int,
) -> list[Explanation]:
    found = cast("Any", targets)
    return [
        Explanation(
            label=label,
            score=round(float(score), SCORE_DECIMALS),
            record=record,
            coarse=unit_range(each),
            width=image.width,
            height=image.height,
            method=parameters.method,
            samples=samples,
            seed=parameters.seed,
        )
        for label, score, record, each in zip(found.labels, found.scores, targets.records(), saliency, strict=True)
    ]
