"""Models that give every pixel a class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.images import ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from tasks.image_segmentation import ImageSegmenter, SegmentationInput, Segments
from tasks.vision.contours import contours_of_mask

__all__ = ("class_map", "load_semantic_segmenter", "segments_of_map")

_AT_ONCE = 2**25
"""Numbers that are enlarged to the size of the picture at once: 128 MiB."""


def load_semantic_segmenter(understood: Understood, network: Network) -> ImageSegmenter:
    """The segmenter of `network`: one object for each class that is seen, its score the mean over its pixels.

    Raises:
        ModelError: when it has no processor.
    """
    images = ImagePreparation(load_image_processor(understood.source))

    def segment(inputs: Sequence[SegmentationInput], /) -> Sequence[Segments]:
        found: dict[int, Segments] = {}
        for batch in images.batches([each.image for each in inputs]):
            logits = network(batch.tensors).logits.float()
            for index, size, each in zip(batch.indices, batch.sizes, logits, strict=True):
                classes, scores = class_map(each, size)
                found[index] = segments_of_map(classes, scores, understood.labels)
        return [found[index] for index in range(len(inputs))]

    return segment


def class_map(logits: Any, size: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The class of every pixel of a picture, and its probability.

    Logits are enlarged bilinearly, as the processors' post-processing does it, but a few classes at a time: all of
    them at the size of a large picture would fill gigabytes.

    Args:
        logits: (classes, rows, columns).
        size: (height, width) of the picture.
    """
    torch = framework().torch
    with torch.inference_mode():
        best = torch.full(size, -torch.inf, device=logits.device)
        classes = torch.zeros(size, dtype=torch.int64, device=logits.device)
        total = torch.zeros(size, device=logits.device)
        step = max(1, _AT_ONCE // (size[0] * size[1]))
        for start in range(0, logits.shape[0], step):
            part = torch.nn.functional.interpolate(
                logits[None, start : start + step], size=size, mode="bilinear", align_corners=False
            )[0]
            highest, at = part.max(dim=0)
            larger = torch.maximum(best, highest)
            total = total * (best - larger).exp() + (part - larger).exp().sum(dim=0)
            classes = torch.where(highest > best, at + start, classes)
            best = larger
        return classes.cpu().numpy(), (1 / total).cpu().numpy()


def segments_of_map(classes: NDArray[np.int64], scores: NDArray[np.float32], labels: Sequence[str]) -> Segments:
    """One object for each class of a (height, width) map that has a label."""
    seen: list[int] = [number for number in np.unique(classes).tolist() if 0 <= number < len(labels)]
    masks = [classes == number for number in seen]
    return Segments(
        labels=[labels[number] for number in seen],
        scores=np.array([scores[mask].mean(dtype=np.float64) for mask in masks], np.float32),
        contours=[contours_of_mask(mask.astype(np.uint8)) for mask in masks],
    )
