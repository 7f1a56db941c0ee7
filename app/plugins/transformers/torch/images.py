"""Convert images to model inputs with the model's own processor."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from app.plugins.transformers.text.library import locked
from tasks.vision.image import Image
from tasks.vision.request import ImageItem

Items = Sequence[ImageItem[Any]]
Tensors = Mapping[str, NDArray[Any]]
ResultT = TypeVar("ResultT")


def image_tensors(processor: Any) -> Callable[[Image], Tensors]:
    """Return the function that makes the inputs of one image, as a batch of one. Several threads may call it."""
    # The transforms of timm make no arrays of NumPy.
    process = locked(processor, "pt")
    return lambda image: process(images=PIL.Image.fromarray(image.pixels))


def batched_model(
    processor: Any, run: Callable[[Items, Tensors], Iterable[ResultT]]
) -> Callable[[Items], Sequence[ResultT]]:
    """Return the model that runs batches of images and their tensors with `run`, and returns the result of each image.

    The model's own `processor` prepares images one by one, and those with inputs of the same shape form a batch. No
    image is padded to the size of another, so the result for an image never depends on the rest of the batch.
    """
    prepare = image_tensors(processor)

    def answer(inputs: Items, /) -> Sequence[ResultT]:
        prepared = [prepare(item.image) for item in inputs]
        by_shape: dict[tuple[Any, ...], list[int]] = {}
        for index, tensors in enumerate(prepared):
            shape = tuple((name, value.shape) for name, value in sorted(tensors.items()))
            by_shape.setdefault(shape, []).append(index)
        by_index: dict[int, ResultT] = {}
        for indices in by_shape.values():
            parts = [prepared[index] for index in indices]
            tensors = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            by_index.update(zip(indices, run([inputs[index] for index in indices], tensors), strict=True))
        return [by_index[index] for index in range(len(inputs))]

    return answer
