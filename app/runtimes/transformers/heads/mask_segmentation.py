"""Run models that output masks with classes: MaskFormer, Mask2Former, OneFormer, EoMT, DETR with masks."""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.images import Batch, ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.tokenizing import load_tokenizer
from app.settings.model import ModelError
from tasks.image_segmentation import ImageSegmenter, SegmentationInput, Segments
from tasks.vision.contours import contours_of_mask

__all__ = ("load_mask_segmenter",)

_MAX_PIXELS = 2**21
"""Masks of larger images are decoded at this size and enlarged. The models' own masks are far smaller."""


_OPTIONS = {
    "panoptic": (),
    "instance": ("return_binary_maps",),
    "semantic": ("return_segmentation_scores",),
}

ScoredMask = tuple[int, float, NDArray[np.uint8]]
"""A class number, a score, and a (height, width) mask of 0 and 1."""


class MaskSegmenter:
    """An `ImageSegmenter` whose outputs the model's own processor decodes.

    Args:
        processor: transformers' image processor.
        network: the model.
        labels: class names by class number.
        layout: `panoptic` and `instance` return one object for each instance, `semantic` one for each class.
        extra: inputs that are the same for every image.
    """

    def __init__(
        self, processor: Any, network: Network, labels: Sequence[str], layout: str, extra: Mapping[str, Any]
    ) -> None:
        self._images = ImagePreparation(processor)
        self._decode = _decoder(processor, layout)
        parameters = inspect.signature(self._decode).parameters
        # Older processors have no options for overlapping instances and class scores.
        self._options = {name: True for name in _OPTIONS[layout] if name in parameters}
        self._network = network
        self._labels = labels
        self._layout = layout
        self._extra = extra

    def __call__(self, inputs: Sequence[SegmentationInput], /) -> Sequence[Segments]:
        by_index: dict[int, Segments] = {}
        for batch in self._images.batches([item.image for item in inputs]):
            repeated = {name: value.repeat(len(batch.indices), 1) for name, value in self._extra.items()}
            outputs = self._network({**batch.tensors, **repeated})
            for position, index in enumerate(batch.indices):
                by_index[index] = self._segments(outputs, batch, position, inputs[index])
        return [by_index[index] for index in range(len(inputs))]

    def _segments(self, outputs: Any, batch: Batch, position: int, item: SegmentationInput) -> Segments:
        size = batch.sizes[position]
        shrink = min(1.0, (_MAX_PIXELS / (size[0] * size[1])) ** 0.5)
        decoded_size = (max(1, round(size[0] * shrink)), max(1, round(size[1] * shrink)))
        image_outputs = _slice(outputs, position, len(batch.indices))
        threshold = item.parameters.score_threshold
        with framework().torch.inference_mode():
            if self._layout == "semantic":
                objects = _classes(self._decode(image_outputs, target_sizes=[decoded_size], **self._options)[0])
            else:
                objects = _objects(
                    self._decode(image_outputs, threshold=threshold, target_sizes=[decoded_size], **self._options)[0]
                )
        objects = [entry for entry in objects if 0 <= entry[0] < len(self._labels)]
        return Segments(
            labels=[self._labels[number] for number, _, _ in objects],
            scores=np.array([score for _, score, _ in objects], np.float32),
            contours=[contours_of_mask(_enlarge(mask, size)) for _, _, mask in objects],
        )


def load_mask_segmenter(spec: ModelSpec, network: Network) -> ImageSegmenter:
    """Return the segmenter of `network`.

    Raises:
        ModelError: if it has no processor, or the processor does not support the layout.
    """
    source, layout = spec.source, spec.layout
    processor = load_image_processor(source)
    if not hasattr(processor, f"post_process_{layout}_segmentation"):
        raise ModelError(f"{source.folder}: layout: {type(processor).__name__} does not support {layout} segmentation")
    extra: dict[str, Any] = {}
    if network.config.model_type == "oneformer":
        encoded = load_tokenizer(source)(
            [f"the task is {layout}"],
            padding="max_length",
            truncation=True,
            max_length=network.config.task_seq_len,
            return_tensors="pt",
        )
        extra["task_inputs"] = encoded["input_ids"]
    return MaskSegmenter(processor, network, spec.labels, layout, extra)


def _decoder(processor: Any, layout: str) -> Any:
    name = f"post_process_{layout}_segmentation"
    if layout != "semantic" and type(processor).__name__ == "OneFormerImageProcessorPil":
        # OneFormer's functions need torchvision and names of data sets; MaskFormer's decode the same outputs.
        return partial(getattr(framework().transformers.MaskFormerImageProcessorPil, name), processor)
    return getattr(processor, name)


def _objects(decoded: Mapping[str, Any]) -> list[ScoredMask]:
    """Return the objects of one image, from a map of object numbers or from separate masks."""
    segments = decoded["segments_info"]
    if not segments or decoded["segmentation"] is None:
        return []
    masks = np.asarray(decoded["segmentation"].cpu())
    separate = masks.ndim == 3
    objects: list[ScoredMask] = []
    for index, segment in enumerate(segments):
        mask = masks[index] > 0 if separate else masks == segment["id"]
        objects.append((int(segment["label_id"]), float(segment["score"]), mask.astype(np.uint8)))
    return objects


def _classes(decoded: Any) -> list[ScoredMask]:
    """Return the classes of one image. The score of a class is the mean over its pixels, or 1 without pixel scores."""
    torch = framework().torch
    has_scores = not torch.is_tensor(decoded)
    scores = decoded["segmentation_scores"].amax(dim=0).clamp(0, 1).cpu().numpy() if has_scores else None
    classes = (decoded["segmentation"] if has_scores else decoded).cpu().numpy()
    objects: list[ScoredMask] = []
    for number in np.unique(classes).tolist():
        mask: NDArray[np.bool_] = classes == number
        score = 1.0 if scores is None else float(scores[mask].mean(dtype=np.float64))
        objects.append((number, score, mask.astype(np.uint8)))
    return objects


def _slice(outputs: Any, position: int, count: int) -> Any:
    """Return the outputs of one image, as a batch of one."""
    if count == 1:
        return outputs
    return SimpleNamespace(
        **{
            name: value[position : position + 1]
            for name, value in outputs.items()
            if framework().torch.is_tensor(value) and value.shape[:1] == (count,)
        }
    )


def _enlarge(mask: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    if mask.shape == size:
        return np.ascontiguousarray(mask)
    return cv2.resize(mask, (size[1], size[0]), interpolation=cv2.INTER_NEAREST).astype(np.uint8)
