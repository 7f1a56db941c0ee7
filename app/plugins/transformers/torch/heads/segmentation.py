"""Run segmentation models: those that classify every pixel, and those that output masks with classes.

The latter are MaskFormer, Mask2Former, OneFormer, EoMT and DETR with masks.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.core.settings.model import ModelError
from app.plugins.transformers.text.library import transformers
from app.plugins.transformers.text.processor import load_image_processor
from app.plugins.transformers.text.tokenizer import load_tokenizer
from app.plugins.transformers.torch.architecture import ModelSpec
from app.plugins.transformers.torch.framework import load_torch
from app.plugins.transformers.torch.images import Items, Tensors, batched_model
from app.plugins.transformers.torch.network import Network
from tasks.image_segmentation import ImageSegmenter, Segments
from tasks.vision.contours import contours_of_mask

_MAX_ENLARGED = 2**25
"""Maximum number of logits that are enlarged to the size of the image at a time: 128 MiB."""

_MAX_PIXELS = 2**21
"""Masks of larger images are decoded at this size and enlarged. The models' own masks are far smaller."""

ScoredMask = tuple[int, float, NDArray[np.uint8]]
"""A class number, a score, and a (height, width) mask of 0 and 1."""


def load_semantic_segmenter(spec: ModelSpec, network: Network) -> ImageSegmenter:
    """Return the segmenter of `network`. It returns one object for each class, with the mean score of its pixels.

    Raise ModelError if it has no processor.
    """

    def run(items: Items, tensors: Tensors) -> Iterator[Segments]:
        for item, planes in zip(items, network(tensors).logits.float(), strict=True):
            size = item.image.pixels.shape[:2]
            yield _segments(_class_masks(*class_map(planes, size)), spec.description.labels, size)

    return batched_model(load_image_processor(spec.source), run)


def load_mask_segmenter(spec: ModelSpec, network: Network) -> ImageSegmenter:
    """Return the segmenter of `network`. The model's own processor decodes its outputs.

    Raise ModelError if it has no processor, or the processor does not support the layout.
    """
    source, layout = spec.source, spec.description.layout
    processor = load_image_processor(source)
    if not hasattr(processor, f"post_process_{layout}_segmentation"):
        raise ModelError(f"{source.folder}: layout: {type(processor).__name__} does not support {layout} segmentation")
    extra: dict[str, Any] = {}
    if network.config.model_type == "oneformer":
        padding = {"padding": "max_length", "truncation": True, "max_length": network.config.task_seq_len}
        encoded = load_tokenizer(source)([f"the task is {layout}"], return_tensors="np", **padding)
        extra["task_inputs"] = encoded["input_ids"]
    decode = _decoder(processor, layout)
    parameters = inspect.signature(decode).parameters
    # Older processors have no options for overlapping instances and class scores.
    options = {name: True for name in ("return_binary_maps", "return_segmentation_scores") if name in parameters}

    def segments(outputs: Any, size: tuple[int, int], threshold: float) -> Segments:
        shrink = min(1.0, (_MAX_PIXELS / (size[0] * size[1])) ** 0.5)
        decoded_size = (max(1, round(size[0] * shrink)), max(1, round(size[1] * shrink)))
        with load_torch().inference_mode():
            if layout == "semantic":
                objects = _classes(decode(outputs, target_sizes=[decoded_size], **options)[0])
            else:
                objects = _objects(decode(outputs, threshold=threshold, target_sizes=[decoded_size], **options)[0])
        return _segments(objects, spec.description.labels, size)

    def run(items: Items, tensors: Tensors) -> Iterator[Segments]:
        count = len(items)
        outputs = network({**tensors, **{name: np.tile(value, (count, 1)) for name, value in extra.items()}})
        for position, item in enumerate(items):
            yield segments(_slice(outputs, position, count), item.image.pixels.shape[:2], item.floor)

    return batched_model(processor, run)


def _decoder(processor: Any, layout: str) -> Any:
    name = f"post_process_{layout}_segmentation"
    if layout != "semantic" and type(processor).__name__ == "OneFormerImageProcessorPil":
        # OneFormer's functions need torchvision and names of data sets; MaskFormer's decode the same outputs.
        return partial(getattr(transformers().MaskFormerImageProcessorPil, name), processor)
    return getattr(processor, name)


def _objects(decoded: Mapping[str, Any]) -> list[ScoredMask]:
    """Return the objects of one image, from a map of object numbers or from separate masks."""
    masks = np.asarray(decoded["segmentation"].cpu())
    separate = masks.ndim == 3
    objects: list[ScoredMask] = []
    for index, segment in enumerate(decoded["segments_info"]):
        mask = masks[index] > 0 if separate else masks == segment["id"]
        objects.append((int(segment["label_id"]), float(segment["score"]), mask.astype(np.uint8)))
    return objects


def _classes(decoded: Any) -> list[ScoredMask]:
    """Return the classes of one image. The score of a class is the mean over its pixels, or 1 without pixel scores."""
    torch = load_torch()
    has_scores = not torch.is_tensor(decoded)
    scores = decoded["segmentation_scores"].amax(dim=0).clamp(0, 1).cpu().numpy() if has_scores else None
    classes = (decoded["segmentation"] if has_scores else decoded).cpu().numpy()
    return _class_masks(classes, scores)


def _class_masks(classes: NDArray[np.integer[Any]], scores: NDArray[np.float32] | None) -> list[ScoredMask]:
    """Return one object for each class in a (height, width) map, with the mean of `scores` over its pixels."""
    objects: list[ScoredMask] = []
    for number in np.unique(classes).tolist():
        mask: NDArray[np.bool_] = classes == number
        score = 1.0 if scores is None else float(scores[mask].mean(dtype=np.float64))
        objects.append((number, score, mask.astype(np.uint8)))
    return objects


def _segments(objects: Sequence[ScoredMask], labels: Sequence[str], size: tuple[int, int]) -> Segments:
    """Convert the objects with a label to contours at the (height, width) of the image."""
    labelled = [entry for entry in objects if 0 <= entry[0] < len(labels)]
    return Segments(
        labels=[labels[number] for number, _, _ in labelled],
        scores=np.array([score for _, score, _ in labelled], np.float32),
        contours=[contours_of_mask(_enlarge(mask, size)) for _, _, mask in labelled],
    )


def _slice(outputs: Any, position: int, count: int) -> Any:
    """Return the outputs of one image, as a batch of one."""
    if count == 1:
        return outputs
    is_tensor = load_torch().is_tensor
    batched = {name: value for name, value in outputs.items() if is_tensor(value) and value.shape[:1] == (count,)}
    return SimpleNamespace(**{name: value[position : position + 1] for name, value in batched.items()})


def _enlarge(mask: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    if mask.shape == size:
        return np.ascontiguousarray(mask)
    return cv2.resize(mask, (size[1], size[0]), interpolation=cv2.INTER_NEAREST).astype(np.uint8)


def class_map(logits: Any, size: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the class of every pixel of an image, and its probability, as (height, width) arrays.

    The logits are enlarged bilinearly as in the processors' post-processing, but a few classes at a time. All classes
    at the size of a large image would need gigabytes.

    Args:
        logits: (classes, rows, columns).
        size: (height, width) of the image, pixels.
    """
    torch = load_torch()
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
