"""Run a graph on images."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.images.image_batch import ImageBatcher
from app.runtimes.onnxruntime.images.inputs import ImageInputs
from app.runtimes.onnxruntime.images.placement import Placement
from app.runtimes.onnxruntime.images.preprocessing import Preprocessing
from app.runtimes.onnxruntime.session import GraphSession
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.tensor import TensorSpec
from tasks.vision.image import Image

_MAX_BATCH = 8
"""Larger batches need more memory and save no time on a CPU."""


class RawOutputs(msgspec.Struct, frozen=True, eq=False):
    """The outputs of the graph for one image, its placement in the input, and the sides of the input in pixels.

    The outputs have no batch dimension. Floating-point ones are float32, unless the graph keeps their datatypes.
    """

    outputs: Sequence[NDArray[Any]]
    placement: Placement
    height: int
    width: int


class ImageGraph:
    """Runs a graph on images of any size, and returns the named `outputs`, in order.

    Outputs have no batch dimension if they are `unbatched`. Floating-point outputs become float32, unless
    `keep_datatypes` is true.
    """

    def __init__(
        self,
        session: GraphSession,
        inputs: ImageInputs,
        preprocessing: Preprocessing,
        outputs: Sequence[str],
        *,
        unbatched: bool = False,
        keep_datatypes: bool = False,
    ) -> None:
        self._session = session
        self._inputs = inputs
        self._image_name, self._only_image = inputs.image.name, inputs.only_image
        self.batcher = ImageBatcher(preprocessing, inputs.image.datatype, channels_last=inputs.channels_last)
        self.preprocessing = preprocessing
        self._dynamic_size = preprocessing.dynamic_size
        self._frame = (preprocessing.height, preprocessing.width)
        self._outputs = tuple(outputs)
        self._unbatched = unbatched
        self._converted_kind = "" if keep_datatypes else "f"
        self._batch = 1 if unbatched else inputs.batch
        # Images of several sizes do not fit into one tensor.
        self._step = 1 if preprocessing.dynamic_size else _MAX_BATCH if self._batch == -1 else self._batch

    def downscale(self, width: int, height: int) -> float:
        """Return the factor by which an image of this size is downscaled; 1 if the input size follows the image."""
        return self.batcher.downscale(width, height) if self._dynamic_size is None else 1.0

    def output_specs(self) -> Sequence[TensorSpec]:
        """Return the selected outputs for any number of images, which are the first dimension."""
        specs = {spec.name: spec for spec in self._session.outputs}
        return [
            msgspec.structs.replace(spec, shape=(-1, *(spec.shape if self._unbatched else spec.shape[1:])))
            for spec in (specs[name] for name in self._outputs)
        ]

    def run(self, images: Sequence[Image]) -> Iterable[RawOutputs]:
        """Return the outputs of each image in order; several batches are computed lazily, one after the other.

        Raises:
            InferenceError: MODEL_FAILED if the graph cannot run, or its batch size is wrong.
        """
        step = self._step
        if 0 < len(images) <= step:
            return self._run_batch(images)
        batches = (images[start : start + step] for start in range(0, len(images), step))
        return (answer for batch in batches for answer in self._run_batch(batch))

    def _run_batch(self, images: Sequence[Image]) -> list[RawOutputs]:
        count = len(images) if self._batch == -1 else self._batch
        frame = self._dynamic_size.input_size(images[0].height, images[0].width) if self._dynamic_size else None
        batch, placements = self.batcher.prepare(images, count, frame)
        height, width = frame or self._frame
        feeds = {self._image_name: batch} if self._only_image else self._inputs.feeds(batch, height, width)
        outputs = self._session.run(feeds, self._outputs)
        floats: list[NDArray[Any]] = []
        for output in outputs:
            if not self._unbatched and output.shape[:1] != (count,):
                shapes = [list(output.shape) for output in outputs]
                message = f"The model received {count} images and returned outputs of the shapes {shapes}"
                raise InferenceError(ErrorKind.MODEL_FAILED, message)
            floats.append(
                output.astype(np.float32, copy=False) if output.dtype.kind == self._converted_kind else output
            )
        if self._unbatched:
            return [RawOutputs(floats, placements[0], height, width)]
        answers: list[RawOutputs] = []
        for placement, *own_outputs in zip(placements, *floats, strict=False):
            answers.append(RawOutputs(own_outputs, placement, height, width))
        return answers
