"""A session that is given pictures."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from numpy.typing import NDArray

from app.runtimes.onnxruntime.image_batch import ImageBatcher
from app.runtimes.onnxruntime.placement import Placement
from app.runtimes.onnxruntime.preprocessing import Preprocessing
from app.runtimes.onnxruntime.session import Session
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.vision.image import Image

__all__ = ("ImageGraph", "RawAnswer")

_LARGEST_BATCH = 8
"""Larger batches take memory and save no time on a CPU."""


class RawAnswer(msgspec.Struct, frozen=True, eq=False):
    """What the graph gave for one picture: each output without its batch dimension."""

    outputs: Sequence[NDArray[Any]]
    placement: Placement


class ImageGraph:
    """Runs pictures of any size through a graph of one image input.

    Args:
        session: a graph whose only input is [batch, 3, height, width].
        preprocessing: how pictures become that input.
    """

    def __init__(self, session: Session, preprocessing: Preprocessing) -> None:
        self._session = session
        self._input = session.inputs[0]
        self._batcher = ImageBatcher(preprocessing, self._input.datatype)
        self._fixed_batch = self._input.shape[0]
        self.height = preprocessing.height
        self.width = preprocessing.width

    def answers(self, images: Sequence[Image]) -> Iterator[RawAnswer]:
        """One answer for each picture, in order, computed batch by batch as they are asked for.

        Raises:
            InferenceError: MODEL_FAILED when the graph cannot run, or answers another number of pictures.
        """
        step = _LARGEST_BATCH if self._fixed_batch == -1 else self._fixed_batch
        for start in range(0, len(images), step):
            chunk = images[start : start + step]
            count = len(chunk) if self._fixed_batch == -1 else self._fixed_batch
            batch, placements = self._batcher.prepare(chunk, count)
            outputs = self._session.run({self._input.name: batch})
            if any(len(output) != count for output in outputs):
                shapes = [list(output.shape) for output in outputs]
                message = f"The model was given {count} images and answered with outputs of the shapes {shapes}"
                raise InferenceError(ErrorKind.MODEL_FAILED, message)
            for index, placement in enumerate(placements):
                yield RawAnswer([output[index] for output in outputs], placement)
