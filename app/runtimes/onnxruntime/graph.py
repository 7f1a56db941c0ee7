"""Run a graph on images."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.image_batch import ImageBatcher
from app.runtimes.onnxruntime.inputs import ImageInputs
from app.runtimes.onnxruntime.placement import Placement
from app.runtimes.onnxruntime.preprocessing import Preprocessing
from app.runtimes.onnxruntime.session import Session
from tasks.inference.error import ErrorKind, InferenceError
from tasks.vision.image import Image

__all__ = ("ImageGraph", "RawOutputs")

_MAX_BATCH = 8
"""Larger batches need more memory and save no time on a CPU."""


class RawOutputs(msgspec.Struct, frozen=True, eq=False):
    """The outputs of the graph for one image.

    Attributes:
        outputs: the selected outputs without their batch dimension; floating-point outputs as float32.
        placement: position of the image in the input.
        height: height of the input, pixels.
        width: width of the input, pixels.
    """

    outputs: Sequence[NDArray[Any]]
    placement: Placement
    height: int
    width: int


class ImageGraph:
    """Runs a graph on images of any size.

    Args:
        session: the graph.
        inputs: its inputs.
        preprocessing: converts images to the image input.
        outputs: names of the outputs to return, in order.
    """

    def __init__(
        self, session: Session, inputs: ImageInputs, preprocessing: Preprocessing, outputs: Sequence[str]
    ) -> None:
        self._session = session
        self._inputs = inputs
        self._batcher = ImageBatcher(preprocessing, inputs.image.datatype, channels_last=inputs.channels_last)
        self._dynamic_size = preprocessing.dynamic_size
        self._outputs = tuple(outputs)
        self.height = preprocessing.height
        self.width = preprocessing.width

    def downscale(self, width: int, height: int) -> float:
        """Return the factor by which an image of this size is downscaled; 1 if the input size follows the image."""
        return self._batcher.downscale(width, height) if self._dynamic_size is None else 1.0

    def run(self, images: Sequence[Image]) -> Iterator[RawOutputs]:
        """Yield the outputs of each image in order, and compute them lazily batch by batch.

        Raises:
            InferenceError: MODEL_FAILED if the graph cannot run, or its batch size is wrong.
        """
        fixed = self._inputs.batch
        if self._dynamic_size is not None:
            # Images of several sizes do not fit into one tensor.
            for image in images:
                yield from self._run_batch(
                    [image], max(fixed, 1), self._dynamic_size.input_size(image.height, image.width)
                )
            return
        step = _MAX_BATCH if fixed == -1 else fixed
        for start in range(0, len(images), step):
            chunk = images[start : start + step]
            yield from self._run_batch(chunk, len(chunk) if fixed == -1 else fixed, (self.height, self.width))

    def _run_batch(self, images: Sequence[Image], count: int, frame: tuple[int, int]) -> Iterator[RawOutputs]:
        batch, placements = self._batcher.prepare(images, count, frame if self._dynamic_size else None)
        height, width = frame
        outputs = self._session.run(self._inputs.feeds(batch, height, width), self._outputs)
        if any(output.shape[:1] != (count,) for output in outputs):
            shapes = [list(output.shape) for output in outputs]
            message = f"The model received {count} images and returned outputs of the shapes {shapes}"
            raise InferenceError(ErrorKind.MODEL_FAILED, message)
        floats = [_as_float32(output) for output in outputs]
        for index, placement in enumerate(placements):
            yield RawOutputs([output[index] for output in floats], placement, height, width)


def _as_float32(output: NDArray[Any]) -> NDArray[Any]:
    return output.astype(np.float32, copy=False) if output.dtype.kind == "f" else output
