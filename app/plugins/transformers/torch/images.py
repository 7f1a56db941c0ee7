"""Convert images to model inputs with the model's own processor."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from app.plugins.transformers.text.library import locked
from tasks.vision.image import Image
from tasks.vision.request import ImageItem

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
    """

    def __init__(self, processor: Any) -> None:
        # The transforms of timm make no arrays of NumPy.
        self._process = locked(processor, "pt")

    def model(
        self, run: Callable[[Batch], Iterable[ResultT]]
    ) -> Callable[[Sequence[ImageItem[Any]]], Sequence[ResultT]]:
        """Return the model that runs batches of images with `run`, and returns the result of each image."""

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
        return self._process(images=PIL.Image.fromarray(image.pixels))
