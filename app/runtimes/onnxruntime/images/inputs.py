"""Identify the inputs of a vision graph: images, and optional sizes or masks."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.files.model_files import ModelFiles
from tasks.inference.tensor import Datatype, TensorSpec

_DATATYPES = (Datatype.FP32, Datatype.FP16, Datatype.UINT8)

_CHANNELS = 3
_IMAGE_RANK = 4
_COUNTS = (Datatype.INT64, Datatype.INT32, Datatype.FP32)


class ImageInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a vision graph.

    Attributes:
        image: [batch, 3, height, width], or [batch, height, width, 3] with `channels_last`; or without the
            batch dimension, for graphs that take one image.
        channels_last: whether the channels are the last dimension of `image`.
        target_sizes: [batch, 2], the (width, height) to which the graph scales its boxes: ``orig_target_sizes`` of
            RT-DETR and D-FINE. The server passes the size of the input, so that all graphs return boxes in input
            pixels.
        pixel_mask: [batch, height, width], 1 for image pixels and 0 for padding: an input of DETR in transformers.
    """

    image: TensorSpec
    channels_last: bool = False
    target_sizes: TensorSpec | None = None
    pixel_mask: TensorSpec | None = None

    @property
    def batch(self) -> int:
        """Return the batch size of the graph; -1 for any size."""
        return self.image.shape[0] if self._has_batch else 1

    @property
    def _has_batch(self) -> bool:
        return len(self.image.shape) == _IMAGE_RANK

    @property
    def sides(self) -> tuple[int, int]:
        """Return the (height, width) of the images; -1 for a side of any length."""
        height, width = self.image.shape[-3:-1] if self.channels_last else self.image.shape[-2:]
        return height, width

    @property
    def only_image(self) -> bool:
        """Return whether a batch of images is all that the graph takes."""
        return self._has_batch and self.target_sizes is None and self.pixel_mask is None

    def feeds(self, images: NDArray[Any], height: int, width: int) -> Mapping[str, NDArray[Any]]:
        """Return all inputs of the graph for an image batch of this size."""
        feeds = {self.image.name: images if self._has_batch else images[0]}
        if self.target_sizes is not None:
            size = np.array([[width, height]], self.target_sizes.datatype.dtype)
            feeds[self.target_sizes.name] = np.repeat(size, len(images), axis=0)
        if self.pixel_mask is not None:
            _, *fixed = self.pixel_mask.shape
            sides = [
                fixed_side if fixed_side != -1 else side
                for fixed_side, side in zip(fixed, (height, width), strict=True)
            ]
            feeds[self.pixel_mask.name] = np.ones((len(images), *sides), self.pixel_mask.datatype.dtype)
        return feeds


def read_inputs(inputs: Sequence[TensorSpec], model_files: ModelFiles) -> ImageInputs:
    """Identify the inputs of the graph.

    Raises:
        ModelError: if there is no image input, or an input of an unknown kind.
    """
    shown = ", ".join(f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in inputs)
    images = [spec for spec in inputs if len(spec.shape) == _IMAGE_RANK]
    images = images or [spec for spec in inputs if is_single_image(spec)]
    if not images:
        raise model_files.error(f"its input should be images [batch, 3, height, width], but is {shown}")
    others = [spec for spec in inputs if spec not in images]
    sizes = [spec for spec in others if _is_target_size(spec)]
    masks = [spec for spec in others if len(spec.shape) == 3 and "mask" in spec.name.lower()]
    if len(images) > 1 or len(sizes) > 1 or len(masks) > 1 or len(others) > len(sizes) + len(masks):
        raise model_files.error(
            f"it takes {len(inputs)} inputs ({shown}), but besides one image only orig_target_sizes [batch, 2] and "
            f"pixel_mask [batch, height, width] are supported"
        )
    (image,) = images
    declared = model_files.settings.preprocessing.channels_last
    channels_last = image.shape[-1] == _CHANNELS and image.shape[-3] != _CHANNELS if declared is None else declared
    if image.shape[-1 if channels_last else -3] not in (_CHANNELS, -1):
        kind = "[batch, height, width, 3]" if channels_last else "[batch, 3, height, width]"
        raise model_files.error(f"its input should be images {kind}, but is {shown}")
    if image.datatype not in _DATATYPES:
        raise model_files.error(f"its input should be of datatype {', '.join(_DATATYPES)}, but is {shown}")
    return ImageInputs(
        image=image,
        channels_last=channels_last,
        target_sizes=sizes[0] if sizes else None,
        pixel_mask=masks[0] if masks else None,
    )


def is_single_image(spec: TensorSpec) -> bool:
    """Return whether an input can be one image without a batch dimension: [3, height, width]."""
    return len(spec.shape) == _IMAGE_RANK - 1 and _CHANNELS in (spec.shape[0], spec.shape[2])


def _is_target_size(spec: TensorSpec) -> bool:
    pairs = len(spec.shape) == 2 and spec.shape[1] in (2, -1)
    return pairs and "size" in spec.name.lower() and spec.datatype in _COUNTS
