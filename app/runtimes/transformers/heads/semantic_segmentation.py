"""Run semantic segmentation models, which classify every pixel."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.images import Batch, ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from tasks.image_segmentation import ImageSegmenter, SegmentationInput, Segments
from tasks.vision.contours import contours_of_mask

_MAX_ENLARGED = 2**25
"""Maximum number of logits that are enlarged to the size of the image at a time: 128 MiB."""


def load_semantic_segmenter(spec: ModelSpec, network: Network) -> ImageSegmenter:
    """Return the segmenter of `network`. It returns one object for each class, with the mean score of its pixels.

    Raises:
        ModelError: if it has no processor.
    """
    images = ImagePreparation(load_image_processor(spec.source))

    def run(batch: Batch) -> list[Segments]:
        logits = network(batch.tensors).logits.float()
        return [
            _segments(*class_map(planes, size), spec.labels) for size, planes in zip(batch.sizes, logits, strict=True)
        ]

    def segment(inputs: Sequence[SegmentationInput], /) -> Sequence[Segments]:
        return images.map([item.image for item in inputs], run)

    return segment


def class_map(logits: Any, size: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the class of every pixel of an image, and its probability, as (height, width) arrays.

    The logits are enlarged bilinearly as in the processors' post-processing, but a few classes at a time. All classes
    at the size of a large image would need gigabytes.

    Args:
        logits: (classes, rows, columns).
        size: (height, width) of the image, pixels.
    """
    torch = framework().torch
    with torch.inference_mode():
        best = torch.full(size, -torch.inf, device=logits.device)
        classes = torch.zeros(size, dtype=torch.int64, device=logits.device)
        total = torch.zeros(size, device=logits.device)
        step = max(1, _MAX_ENLARGED // (size[0] * size[1]))
        for start in range(0, logits.shape[0], step):
            part = torch.nn.functional.interpolate(
                logits[None, start : start + step], size=size, mode="bilinear", align_corners=False
            )[0]
            highest, index = part.max(dim=0)
            larger = torch.maximum(best, highest)
            total = total * (best - larger).exp() + (part - larger).exp().sum(dim=0)
            classes = torch.where(highest > best, index + start, classes)
            best = larger
        return classes.cpu().numpy(), (1 / total).cpu().numpy()


def _segments(classes: NDArray[np.int64], scores: NDArray[np.float32], labels: Sequence[str]) -> Segments:
    present: list[int] = [number for number in np.unique(classes).tolist() if 0 <= number < len(labels)]
    masks = [classes == number for number in present]
    return Segments(
        labels=[labels[number] for number in present],
        scores=np.array([scores[mask].mean(dtype=np.float64) for mask in masks], np.float32),
        contours=[contours_of_mask(mask.astype(np.uint8)) for mask in masks],
    )
