"""Models that give masks with classes: MaskFormer, Mask2Former, OneFormer, EoMT, DETR with masks."""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.images import Batch, ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.tokenizing import load_tokenizer
from app.settings.model import ModelError
from tasks.image_segmentation import ImageSegmenter, SegmentationInput, Segments
from tasks.vision.contours import contours_of_mask

__all__ = ("load_mask_segmenter",)

_MOST_PIXELS = 2**21
"""A picture of more has its masks read at so many pixels and enlarged. The models' own masks are far smaller."""


_WANTED = {
    "panoptic": (),
    "instance": ("return_binary_maps",),
    "semantic": ("return_segmentation_scores",),
}

Found = tuple[int, float, NDArray[np.uint8]]
"""A class number, a score, and a (height, width) mask of 0 and 1."""


class MaskSegmenter:
    """An `ImageSegmenter` whose outputs are read by the model's own processor.

    Args:
        processor: transformers' image processor.
        network: the model.
        labels: class names by class number.
        layout: `panoptic` and `instance` give one object for each thing, `semantic` one for each class.
        extra: inputs that are the same for every picture.
    """

    def __init__(
        self, processor: Any, network: Network, labels: Sequence[str], layout: str, extra: Mapping[str, Any]
    ) -> None:
        self._images = ImagePreparation(processor)
        self._read = _reader(processor, layout)
        known = inspect.signature(self._read).parameters
        # Instances may overlap, and classes have scores; older processors can say neither.
        self._asked = {name: True for name in _WANTED[layout] if name in known}
        self._network = network
        self._labels = labels
        self._layout = layout
        self._extra = extra

    def __call__(self, inputs: Sequence[SegmentationInput], /) -> Sequence[Segments]:
        found: dict[int, Segments] = {}
        for batch in self._images.batches([each.image for each in inputs]):
            repeated = {name: value.repeat(len(batch.indices), 1) for name, value in self._extra.items()}
            outputs = self._network({**batch.tensors, **repeated})
            for place, index in enumerate(batch.indices):
                found[index] = self._segments(outputs, batch, place, inputs[index])
        return [found[index] for index in range(len(inputs))]

    def _segments(self, outputs: Any, batch: Batch, place: int, item: SegmentationInput) -> Segments:
        size = batch.sizes[place]
        shrink = min(1.0, (_MOST_PIXELS / (size[0] * size[1])) ** 0.5)
        read_at = (max(1, round(size[0] * shrink)), max(1, round(size[1] * shrink)))
        own = _slice(outputs, place, len(batch.indices))
        threshold = item.parameters.score_threshold
        with framework().torch.inference_mode():
            if self._layout == "semantic":
                found = _classes(self._read(own, target_sizes=[read_at], **self._asked)[0])
            else:
                found = _objects(self._read(own, threshold=threshold, target_sizes=[read_at], **self._asked)[0])
        found = [each for each in found if 0 <= each[0] < len(self._labels)]
        return Segments(
            labels=[self._labels[number] for number, _, _ in found],
            scores=np.array([score for _, score, _ in found], np.float32),
            contours=[contours_of_mask(_enlarged(mask, size)) for _, _, mask in found],
        )


def load_mask_segmenter(understood: Understood, network: Network) -> ImageSegmenter:
    """The segmenter of `network`.

    Raises:
        ModelError: when it has no processor, or one that does not read its outputs in the layout.
    """
    source, layout = understood.source, understood.layout
    processor = load_image_processor(source)
    if not hasattr(processor, f"post_process_{layout}_segmentation"):
        raise ModelError(f"{source.folder}: layout: {type(processor).__name__} reads no {layout} segmentation")
    extra: dict[str, Any] = {}
    if network.config.model_type == "oneformer":
        made = load_tokenizer(source)(
            [f"the task is {layout}"],
            padding="max_length",
            truncation=True,
            max_length=network.config.task_seq_len,
            return_tensors="pt",
        )
        extra["task_inputs"] = made["input_ids"]
    return MaskSegmenter(processor, network, understood.labels, layout, extra)


def _reader(processor: Any, layout: str) -> Any:
    name = f"post_process_{layout}_segmentation"
    if layout != "semantic" and type(processor).__name__ == "OneFormerImageProcessorPil":
        # OneFormer's own need torchvision to enlarge masks, and data sets' names; MaskFormer's read the same outputs.
        return partial(getattr(framework().transformers.MaskFormerImageProcessorPil, name), processor)
    return getattr(processor, name)


def _objects(read: Mapping[str, Any]) -> list[Found]:
    """The objects of one picture, whose masks come as a map of their numbers, or each for itself."""
    told = read["segments_info"]
    if not told or read["segmentation"] is None:
        return []
    masks = np.asarray(read["segmentation"].cpu())
    apart = masks.ndim == 3
    found: list[Found] = []
    for place, each in enumerate(told):
        mask = masks[place] > 0 if apart else masks == each["id"]
        found.append((int(each["label_id"]), float(each["score"]), mask.astype(np.uint8)))
    return found


def _classes(read: Any) -> list[Found]:
    """The classes of one picture; a class scores the mean of its score over its pixels, or 1 where there are none."""
    torch = framework().torch
    scores = None if torch.is_tensor(read) else read["segmentation_scores"].amax(dim=0).clamp(0, 1).cpu().numpy()
    classes = (read if torch.is_tensor(read) else read["segmentation"]).cpu().numpy()
    found: list[Found] = []
    for number in np.unique(classes).tolist():
        mask: NDArray[np.bool_] = classes == number
        score = 1.0 if scores is None else float(scores[mask].mean(dtype=np.float64))
        found.append((number, score, mask.astype(np.uint8)))
    return found


def _slice(outputs: Any, place: int, count: int) -> Any:
    """The outputs of one picture, still a batch."""
    if count == 1:
        return outputs
    return SimpleNamespace(
        **{
            name: value[place : place + 1]
            for name, value in outputs.items()
            if framework().torch.is_tensor(value) and value.shape[:1] == (count,)
        }
    )


def _enlarged(mask: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    if mask.shape == size:
        return np.ascontiguousarray(mask)
    return cv2.resize(mask, (size[1], size[0]), interpolation=cv2.INTER_NEAREST).astype(np.uint8)
