"""Convert images to model inputs as the model's own processor does.

A lookup table replaces the processor if it gives the same numbers but for rounding. Each load tests this on noise of
several sizes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.images.image_batch import ImageBatcher
from app.core.runtimes.onnxruntime.images.preprocessing import Preprocessing
from app.plugins.transformers.hugging_face.files import Preprocessor, processor_preprocessing, processor_size
from app.plugins.transformers.text.library import locked
from tasks.inference.tensor import Datatype
from tasks.task import TaskType
from tasks.vision.image import Image
from tasks.vision.request import ImageItem

TOLERANCE = 1e-5
"""Maximum difference of a normalised pixel from the processor's, if no byte of the resized image differs."""
_MAX_ROUNDED = 0.02
"""Share of the bytes of small images of noise that may differ by rounding in the resize."""

_PROBES = ((64, 48), (301, 200), (97, 333), (1, 5), (32, 32))
"""(width, height) of the test images for both implementations, pixels."""

Tensors = Mapping[str, NDArray[Any]]
ResultT = TypeVar("ResultT")


class Batch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Images for one call of the model.

    Attributes:
        items: the images with their parameters.
        tensors: the model's inputs.
    """

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

    Attributes:
        table: the preparation with a lookup table that replaces the processor; None if it gives other numbers.
    """

    def __init__(self, processor: Any) -> None:
        # The transforms of timm make no arrays of NumPy.
        self._process = locked(processor, "pt")
        table = table_preparation(processor)
        self.table = table if table is not None and self._matches_processor(table) else None

    def model(
        self, run: Callable[[Batch], Iterable[ResultT]]
    ) -> Callable[[Sequence[ImageItem[Any]]], Sequence[ResultT]]:
        """Return the model that answers each image with its result of `run`, which returns those of a batch."""

        def answer(inputs: Sequence[ImageItem[Any]], /) -> Sequence[ResultT]:
            prepared = [self.prepare(item.image) for item in inputs]
            by_shape: dict[tuple[Any, ...], list[int]] = {}
            for index, tensors in enumerate(prepared):
                shape = tuple((name, value.shape) for name, value in sorted(tensors.items()))
                by_shape.setdefault(shape, []).append(index)
            by_index: dict[int, ResultT] = {}
            for indices in by_shape.values():
                parts = [prepared[index] for index in indices]
                tensors = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
                batch = Batch(items=[inputs[index] for index in indices], tensors=tensors)
                by_index.update(zip(indices, run(batch), strict=True))
            return [by_index[index] for index in range(len(inputs))]

        return answer

    def prepare(self, image: Image) -> Tensors:
        """Return the inputs of one image, as a batch of one."""
        if self.table is not None:
            return {"pixel_values": self.table(image.pixels)}
        return self._process(images=PIL.Image.fromarray(image.pixels))

    def _matches_processor(self, table: "PixelTable") -> bool:
        random = np.random.default_rng(0)
        for width, height in _PROBES:
            noise = random.integers(0, 256, (height, width, 3), np.uint8)
            try:
                expected = self._process(images=PIL.Image.fromarray(noise))
            except Exception:  # noqa: BLE001 - a request raises the processor's error again
                return False
            if list(expected) != ["pixel_values"]:
                return False
            expected_pixels, table_pixels = expected["pixel_values"], table(noise)
            if expected_pixels.shape != table_pixels.shape:
                return False
            difference = np.abs(expected_pixels - table_pixels)
            rounded = difference > TOLERANCE
            if difference.max() > 2 * table.step + TOLERANCE or rounded.sum() > max(3, _MAX_ROUNDED * rounded.size):
                return False
        return True


class PixelTable:
    """Converts (height, width, 3) pixels to (1, 3, height, width), as for ONNX graphs.

    Attributes:
        step: the largest difference that one byte of the resized image makes.
    """

    def __init__(self, preprocessing: Preprocessing) -> None:
        self._batcher = ImageBatcher(preprocessing, Datatype.FP32)
        self.step = preprocessing.scale / min(preprocessing.std)

    def __call__(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        return self._batcher.prepare([Image(pixels)], 1)[0]


def table_preparation(processor: Any) -> PixelTable | None:
    """Return the preparation from the processor's options; None if it keeps the aspect ratio.

    The processor may do more.
    """
    try:
        declared = msgspec.json.decode(processor.to_json_string(), type=Preprocessor)
    except (TypeError, msgspec.DecodeError):
        return None
    size, options = processor_size(declared), processor_preprocessing(declared, TaskType.IMAGE_CLASSIFICATION)
    if size is None or options is None or declared.resized.sides is None or None in (options.mean, options.std):
        return None
    shared = ("resize", "interpolation", "antialias", "shorter_side", "scale", "mean", "std", "crop_half_even")
    preprocessing = Preprocessing(
        height=size[0],
        width=size[1],
        bgr=options.channel_order == "BGR",
        **{name: getattr(options, name) for name in shared},
    )
    return PixelTable(preprocessing)
