"""Identify the inputs of a vision graph, images and optional sizes or masks, and run the graph on images."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.files.model_files import ModelFiles
from app.core.runtimes.onnxruntime.images.image_batch import ImageBatcher, Placement
from app.core.runtimes.onnxruntime.images.preprocessing import Preprocessing
from app.core.runtimes.onnxruntime.session import GraphSession
from tasks.inference.error import model_failed
from tasks.inference.limits import too_large
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.vision.image import Image

_DATATYPES = (Datatype.FP32, Datatype.FP16, Datatype.UINT8)

_CHANNELS, _GREY = 3, 1
_IMAGE_RANK = 4
_COUNTS = (Datatype.INT64, Datatype.INT32, Datatype.FP32)
_FILLED = re.compile("size|mask|scale|shape|info")
"""Words in the names of inputs that the server fills in."""

_ADVICE = (
    'declare {"task_type": "TENSOR"} without "preprocessing" in model-settings.json, so that clients send all inputs '
    "as tensors, or write a Python class that prepares them: docs/models.md#onnx, docs/python_models.md#other-outputs"
)

_MAX_ENLARGEMENT = 4
"""How many times the pixels of the input the tensors of clients may have, if the graph takes images of any size."""

_MAX_BATCH = 8
"""Larger batches need more memory and save no time on a CPU."""


class ImageInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a vision graph.

    Attributes:
        image: [batch, channels, height, width], or [batch, height, width, channels] with `channels_last`; or without
            the batch dimension, for graphs that take one image.
        channels_last: whether the channels are the last dimension of `image`.
        target_sizes: [batch, 2], the (width, height) to which the graph scales its boxes: ``orig_target_sizes`` of
            RT-DETR and D-FINE. The server passes the size of the input, so that all graphs return boxes in input
            pixels.
        pixel_mask: [batch, height, width], 1 for image pixels and 0 for padding: an input of DETR in transformers.
        shapes: [batch, 2 or 3], the (height, width) of the input in pixels, and the factor 1: ``im_shape`` and
            ``im_info`` of PaddleDetection, ``image_shape`` of Keras.
        scales: [batch, 2], the factors between image and input, to which graphs scale their boxes back:
            ``scale_factor`` of PaddleDetection. The server passes ones.
    """

    image: TensorSpec
    channels_last: bool = False
    target_sizes: TensorSpec | None = None
    pixel_mask: TensorSpec | None = None
    shapes: Sequence[TensorSpec] = ()
    scales: Sequence[TensorSpec] = ()

    @property
    def filled(self) -> Sequence[TensorSpec]:
        """Return the inputs besides the image, which the server fills in."""
        further = [spec for spec in (self.target_sizes, self.pixel_mask) if spec is not None]
        return [*further, *self.shapes, *self.scales]

    @property
    def batch(self) -> int:
        """Return the batch size of the graph; -1 for any size."""
        return self.image.shape[0] if len(self.image.shape) == _IMAGE_RANK else 1

    @property
    def channels(self) -> int:
        """Return 1 for grey images, otherwise 3."""
        return _GREY if self.image.shape[-1 if self.channels_last else -3] == _GREY else _CHANNELS

    @property
    def sides(self) -> tuple[int, int]:
        """Return the (height, width) of the images; -1 for a side of any length."""
        return self.sides_of(self.image.shape)

    def sides_of(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return the (height, width) in a shape of the image input."""
        height, width = shape[-3:-1] if self.channels_last else shape[-2:]
        return height, width

    def feeds(self, images: NDArray[Any], height: int, width: int) -> Mapping[str, NDArray[Any]]:
        """Return all inputs of the graph for an image batch of this size."""
        feeds = {self.image.name: images if len(self.image.shape) == _IMAGE_RANK else images[0]}
        rows = [(spec, (width, height)) for spec in (self.target_sizes,) if spec is not None]
        rows += [(spec, (height, width, 1)[: spec.shape[1]]) for spec in self.shapes]
        rows += [(spec, (1, 1)) for spec in self.scales]
        for spec, row in rows:
            feeds[spec.name] = np.repeat(np.array([row], spec.datatype.dtype), len(images), axis=0)
        if self.pixel_mask is not None:
            _, *fixed = self.pixel_mask.shape
            sides = [side if own == -1 else own for own, side in zip(fixed, (height, width), strict=True)]
            feeds[self.pixel_mask.name] = np.ones((len(images), *sides), self.pixel_mask.datatype.dtype)
        return feeds


def read_inputs(inputs: Sequence[TensorSpec], model_files: ModelFiles) -> ImageInputs:
    """Identify the inputs of the graph. Raise ModelError if there is no image input, or an input of an unknown kind."""
    shown = ", ".join(f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in inputs)
    images = [spec for spec in inputs if len(spec.shape) == _IMAGE_RANK]
    images = images or [spec for spec in inputs if is_single_image(spec)]
    if not images:
        raise model_files.error(f"{_expected(channels_last=False)}, but is {shown}; {_ADVICE}")
    others = [spec for spec in inputs if spec not in images]
    sizes, masks, shapes, scales = (
        [spec for spec in others if _is_filled(spec, kind)] for kind in ("size", "mask", "shape|info", "scale")
    )
    known = len(sizes) + len(masks) + len(shapes) + len(scales)
    if len(images) > 1 or len(sizes) > 1 or len(masks) > 1 or len(others) > known:
        raise model_files.error(
            f"it takes {len(inputs)} inputs ({shown}), but besides one image only orig_target_sizes, im_shape and "
            f"scale_factor [batch, 2], im_info [batch, 3] and pixel_mask [batch, height, width] are supported; "
            f"{_ADVICE}"
        )
    (image,) = images
    declared = model_files.settings.preprocessing.channels_last
    first, last = image.shape[-3], image.shape[-1]
    # Three channels are more likely than one.
    channels_last = first != _CHANNELS and (last == _CHANNELS or (last == _GREY and first != _GREY))
    channels_last = channels_last if declared is None else declared
    if (last if channels_last else first) not in (_CHANNELS, _GREY, -1):
        raise model_files.error(f"{_expected(channels_last=channels_last)}, but is {shown}; {_ADVICE}")
    if image.datatype not in _DATATYPES:
        raise model_files.error(f"its input should be of datatype {', '.join(_DATATYPES)}, but is {shown}; {_ADVICE}")
    return ImageInputs(
        image=image,
        channels_last=channels_last,
        target_sizes=sizes[0] if sizes else None,
        pixel_mask=masks[0] if masks else None,
        shapes=shapes,
        scales=scales,
    )


def _is_filled(spec: TensorSpec, kind: str) -> bool:
    """Return whether the first of the known words in an input's name is of `kind`, and its shape fits."""
    word = _FILLED.search(spec.name.lower())
    if word is None or word[0] not in kind.split("|"):
        return False
    if kind == "mask":
        return len(spec.shape) == _IMAGE_RANK - 1
    widths = (2, 3) if word[0] == "info" else (2, -1) if kind == "size" else (2,)
    return len(spec.shape) == 2 and spec.shape[1] in widths and spec.datatype in _COUNTS


def _expected(*, channels_last: bool) -> str:
    shape = "[batch, height, width, 3]" if channels_last else "[batch, 3, height, width]"
    return f"its input should be images {shape}, or 1 instead of 3 for grey"


def is_single_image(spec: TensorSpec) -> bool:
    """Return whether an input can be one image without a batch dimension: [3, height, width]."""
    return len(spec.shape) == _IMAGE_RANK - 1 and _CHANNELS in (spec.shape[0], spec.shape[2])


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
        self.session = session
        self._inputs = inputs
        self.batcher = ImageBatcher(
            preprocessing, inputs.image.datatype, channels_last=inputs.channels_last, grey=inputs.channels == _GREY
        )
        self.preprocessing = preprocessing
        self._outputs = tuple(outputs)
        self._unbatched = unbatched
        self._converted_kind = "" if keep_datatypes else "f"
        self._batch = 1 if unbatched else inputs.batch
        # Images of several sizes do not fit into one tensor.
        self.max_images = 1 if preprocessing.dynamic_size else _MAX_BATCH if self._batch == -1 else self._batch

    def output_specs(self) -> Sequence[TensorSpec]:
        """Return the selected outputs for any number of images, which are the first dimension."""
        specs = {spec.name: spec for spec in self.session.outputs}
        return [
            msgspec.structs.replace(spec, shape=(-1, *(spec.shape if self._unbatched else spec.shape[1:])))
            for spec in (specs[name] for name in self._outputs)
        ]

    def run(self, images: Sequence[Image]) -> list[RawOutputs]:
        """Return the outputs of each of 1 to `max_images` images, in order.

        Raise MODEL_FAILED if the graph cannot run, or its batch size is wrong.
        """
        count = len(images) if self._batch == -1 else self._batch
        height, width = self.preprocessing.height, self.preprocessing.width
        if self.preprocessing.dynamic_size:
            height, width = self.preprocessing.dynamic_size.input_size(images[0].height, images[0].width)
        batch, placements = self.batcher.prepare(images, count, (height, width))
        outputs = self.session.run(self._inputs.feeds(batch, height, width), self._outputs)
        if not self._unbatched and any(output.shape[:1] != (count,) for output in outputs):
            shapes = [list(output.shape) for output in outputs]
            raise model_failed(f"The model received {count} images and returned outputs of the shapes {shapes}")
        converted = [
            output.astype(np.float32, copy=False) if output.dtype.kind == self._converted_kind else output
            for output in outputs
        ]
        if self._unbatched:
            return [RawOutputs(converted, placements[0], height, width)]
        # Further rows belong to images that fill a batch of fixed size.
        rows = zip(placements, *converted, strict=False)
        return [RawOutputs(own_outputs, placement, height, width) for placement, *own_outputs in rows]

    def run_tensors(self, tensors: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return all outputs of the graph for its inputs, which the client has prepared.

        Raise TOO_LARGE if a graph for images of any size gets ones much larger than `run` would, MODEL_FAILED if it
        cannot run.
        """
        height, width = self._inputs.sides_of(tensors[self._inputs.image.name].shape)
        if -1 in self._inputs.sides:
            rule = self.preprocessing.dynamic_size
            size = self.preprocessing.height, self.preprocessing.width
            max_pixels = _MAX_ENLARGEMENT * math.prod(rule.input_size(height, width) if rule else size)
            if height * width > max_pixels:
                unit = 'pixels in an image ("preprocessing": {"size": [height, width]} in model-settings.json)'
                raise too_large(max_pixels, unit, height * width)
        return self.session.run(tensors)
