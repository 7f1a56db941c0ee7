"""Convert images to model inputs as the model's own processor does.

If a lookup table gives the same numbers, it replaces the processor. Each load tests this on noise of several sizes.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import cv2
import msgspec
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from app.runtimes.transformers.framework import framework, load_part
from app.settings.model import ModelSource
from tasks.vision.image import Image
from tasks.vision.request import ImageItem

TOLERANCE = 1e-5
"""Maximum difference of a normalised pixel from the processor's."""

_PROBES = ((64, 48), (301, 200), (97, 333), (1, 5), (32, 32))
"""(width, height) of the test images for both implementations, pixels."""

Tensors = Mapping[str, Any]
ResultT = TypeVar("ResultT")


class Batch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Images for one call of the model.

    Attributes:
        indices: position of each image in the request.
        items: the images with their parameters.
        tensors: the model's inputs.
    """

    indices: Sequence[int]
    items: Sequence[ImageItem[Any]]
    tensors: Tensors

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        """Return the (height, width) of each image, pixels."""
        return [(item.image.height, item.image.width) for item in self.items]


class ImagePreparation:
    """Converts images to model inputs. Several threads may call it.

    Images are prepared one by one, and those with inputs of the same shape form a batch. No image is padded to the size
    of another, so the result for an image never depends on the rest of the batch.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._lock = threading.Lock()
        table = table_preparation(processor)
        self._table = table if table is not None and self._matches_processor(table) else None

    @property
    def uses_table(self) -> bool:
        """Return whether the lookup table replaces the processor."""
        return self._table is not None

    def model(
        self, run: Callable[[Batch], Iterable[ResultT]]
    ) -> Callable[[Sequence[ImageItem[Any]]], Sequence[ResultT]]:
        """Return the model that answers each image with its result of `run`, which returns those of a batch."""

        def answer(inputs: Sequence[ImageItem[Any]], /) -> Sequence[ResultT]:
            by_index: dict[int, ResultT] = {}
            for batch in self.batches(inputs):
                by_index.update(zip(batch.indices, run(batch), strict=True))
            return [by_index[index] for index in range(len(inputs))]

        return answer

    def batches(self, items: Sequence[ImageItem[Any]]) -> Iterator[Batch]:
        """Yield the inputs of images in batches of one shape."""
        prepared = [self.prepare(item.image) for item in items]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for index, tensors in enumerate(prepared):
            key = tuple((name, tuple(np.shape(value))) for name, value in sorted(tensors.items()))
            groups.setdefault(key, []).append(index)
        for indices in groups.values():
            yield Batch(
                indices=indices,
                items=[items[index] for index in indices],
                tensors={
                    name: framework().torch.cat([prepared[index][name] for index in indices])
                    for name in prepared[indices[0]]
                },
            )

    def prepare(self, image: Image) -> Tensors:
        """Return the inputs of one image, as a batch of one."""
        if self._table is not None:
            return {"pixel_values": framework().torch.from_numpy(self._table(image.pixels))}
        return self._process(image.pixels)

    def _process(self, pixels: NDArray[np.uint8]) -> Tensors:
        with self._lock:
            processed: Any = self._processor(images=PIL.Image.fromarray(pixels), return_tensors="pt")
        return {name: value for name, value in processed.items() if framework().torch.is_tensor(value)}

    def _matches_processor(self, table: Callable[[NDArray[np.uint8]], NDArray[np.float32]]) -> bool:
        random = np.random.default_rng(0)
        for width, height in _PROBES:
            noise = random.integers(0, 256, (height, width, 3), np.uint8)
            try:
                expected = self._process(noise)
            except Exception:  # noqa: BLE001 - a request raises the processor's error again
                return False
            if list(expected) != ["pixel_values"]:
                return False
            expected_pixels, table_pixels = expected["pixel_values"].numpy(), table(noise)
            if expected_pixels.shape != table_pixels.shape or np.abs(expected_pixels - table_pixels).max() > TOLERANCE:
                return False
        return True


def load_image_processor(source: ModelSource) -> Any:
    """Load a model's image processor, with the NumPy and Pillow backend.

    Raises:
        ModelError: if it cannot be loaded from the files.
    """
    return load_part("AutoImageProcessor", source, "image processor", backend="pil")


def table_preparation(processor: Any) -> Callable[[NDArray[np.uint8]], NDArray[np.float32]] | None:
    """Return the processor's work as Pillow and a lookup table, or None if it may do more than resize and normalise.

    The returned function converts (height, width, 3) pixels to (1, 3, height, width).
    """
    options = {name: getattr(processor, name, None) for name in _OPTIONS}
    size, crop = _plain_size(options["size"]), _plain_size(options["crop_size"])
    if options["do_pad"] or options["do_flip_channel_order"]:
        return None
    if options["do_resize"] and not size.keys() >= {"height", "width"}:
        return None
    if options["do_center_crop"] and "height" not in crop:
        return None
    scale = float(options["rescale_factor"] or 1) if options["do_rescale"] else 1.0
    pixels = np.arange(256, dtype=np.float64) * scale
    mean, std = (options["image_mean"], options["image_std"]) if options["do_normalize"] else ((0.0,) * 3, (1.0,) * 3)
    if mean is None or std is None or not len(mean) == len(std) == 3:
        return None
    tables = [((pixels - m) / s).astype(np.float32) for m, s in zip(mean, std, strict=True)]

    def prepare(image: NDArray[np.uint8]) -> NDArray[np.float32]:
        resized = image
        if options["do_resize"] and resized.shape[:2] != (size["height"], size["width"]):
            target_size = (size["width"], size["height"])
            resized = np.asarray(PIL.Image.fromarray(resized).resize(target_size, resample=options["resample"]))
        if options["do_center_crop"]:
            top, left = (resized.shape[0] - crop["height"]) // 2, (resized.shape[1] - crop["width"]) // 2
            resized = resized[top : top + crop["height"], left : left + crop["width"]]
        planes = np.empty((1, 3, *resized.shape[:2]), np.float32)
        for channel, table in enumerate(tables):
            planes[0, channel] = cv2.LUT(np.ascontiguousarray(resized[:, :, channel]), table)
        return planes

    return prepare


_OPTIONS = (
    *("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_pad", "do_flip_channel_order"),
    *("size", "crop_size", "resample", "rescale_factor", "image_mean", "image_std"),
)


def _plain_size(size: Any) -> dict[str, int]:
    return {name: int(value) for name, value in dict(size or {}).items() if value is not None}
