"""A session that is given pictures."""

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
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.vision.image import Image

__all__ = ("ImageGraph", "RawAnswer")

_LARGEST_BATCH = 8
"""Larger batches take memory and save no time on a CPU."""


class RawAnswer(msgspec.Struct, frozen=True, eq=False):
    """What the graph gave for one picture.

    Attributes:
        outputs: those that were asked for, each without its batch dimension; floating-point ones as float32.
        placement: where the picture lay in the input.
        height: of the input, pixels.
        width: of the input, pixels.
    """

    outputs: Sequence[NDArray[Any]]
    placement: Placement
    height: int
    width: int


class ImageGraph:
    """Runs pictures of any size through a graph.

    Args:
        session: the graph.
        inputs: its inputs.
        preprocessing: how pictures become the image input.
        outputs: the names of the outputs that are read, in the order in which they are wanted.
    """

    def __init__(
        self, session: Session, inputs: ImageInputs, preprocessing: Preprocessing, outputs: Sequence[str]
    ) -> None:
        self._session = session
        self._inputs = inputs
        self._batcher = ImageBatcher(preprocessing, inputs.image.datatype, channels_last=inputs.channels_last)
        self._elastic = preprocessing.elastic
        self._outputs = tuple(outputs)
        self.height = preprocessing.height
        self.width = preprocessing.width

    def detail(self, width: int, height: int) -> float:
        """How much smaller than a picture of this size the graph sees it; 1 where its input follows the picture."""
        return self._batcher.detail(width, height) if self._elastic is None else 1.0

    def answers(self, images: Sequence[Image]) -> Iterator[RawAnswer]:
        """One answer for each picture, in order, computed batch by batch as they are asked for.

        Raises:
            InferenceError: MODEL_FAILED when the graph cannot run, or answers another number of pictures.
        """
        fixed = self._inputs.batch
        if self._elastic is not None:
            # Pictures of several sizes do not fit into one tensor.
            for image in images:
                yield from self._run([image], max(fixed, 1), self._elastic.frame(image.height, image.width))
            return
        step = _LARGEST_BATCH if fixed == -1 else fixed
        for start in range(0, len(images), step):
            chunk = images[start : start + step]
            yield from self._run(chunk, len(chunk) if fixed == -1 else fixed, (self.height, self.width))

    def _run(self, images: Sequence[Image], count: int, frame: tuple[int, int]) -> Iterator[RawAnswer]:
        batch, placements = self._batcher.prepare(images, count, frame if self._elastic else None)
        height, width = frame
        outputs = self._session.run(self._inputs.feeds(batch, height, width), self._outputs)
        if any(output.shape[:1] != (count,) for output in outputs):
            shapes = [list(output.shape) for output in outputs]
            message = f"The model was given {count} images and answered with outputs of the shapes {shapes}"
            raise InferenceError(ErrorKind.MODEL_FAILED, message)
        floats = [_as_float32(output) for output in outputs]
        for index, placement in enumerate(placements):
            yield RawAnswer([output[index] for output in floats], placement, height, width)


def _as_float32(output: NDArray[Any]) -> NDArray[Any]:
    return output.astype(np.float32, copy=False) if output.dtype.kind == "f" else output
