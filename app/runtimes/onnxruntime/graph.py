"""Run a graph on images."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.images.image_batch import ImageBatcher, Placement, fit
from app.runtimes.onnxruntime.images.inputs import ImageInputs
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
    """Runs a graph on `max_images` of any size at once, and returns the named `outputs`, in order.

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
        self._outputs = tuple(outputs)
        self._unbatched = unbatched
        self._converted_kind = "" if keep_datatypes else "f"
        self._batch = 1 if unbatched else inputs.batch
        # Images of several sizes do not fit into one tensor.
        self.max_images = 1 if preprocessing.dynamic_size else _MAX_BATCH if self._batch == -1 else self._batch

    def downscale(self, width: int, height: int) -> float:
        """Return the factor by which an image of this size is downscaled; 1 if the input size follows the image."""
        options = self.preprocessing
        if options.dynamic_size is not None:
            return 1.0
        place = fit((height, width), (options.height, options.width), options)
        return min((width - 2 * place.cut_x) / place.width, (height - 2 * place.cut_y) / place.height)

    def output_specs(self) -> Sequence[TensorSpec]:
        """Return the selected outputs for any number of images, which are the first dimension."""
        specs = {spec.name: spec for spec in self._session.outputs}
        return [
            msgspec.structs.replace(spec, shape=(-1, *(spec.shape if self._unbatched else spec.shape[1:])))
            for spec in (specs[name] for name in self._outputs)
        ]

    def run(self, images: Sequence[Image]) -> list[RawOutputs]:
        """Return the outputs of each of 1 to `max_images` images, in order.

        Raises:
            InferenceError: MODEL_FAILED if the graph cannot run, or its batch size is wrong.
        """
        count = len(images) if self._batch == -1 else self._batch
        height, width = self.preprocessing.height, self.preprocessing.width
        if self.preprocessing.dynamic_size:
            height, width = self.preprocessing.dynamic_size.input_size(images[0].height, images[0].width)
        batch, placements = self.batcher.prepare(images, count, (height, width))
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
