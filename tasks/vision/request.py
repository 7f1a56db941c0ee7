"""Read the images of a request, for all vision tasks."""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import Limits, too_large
from tasks.inference.request import InferenceRequest, read_parameters
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Labelled, TensorSpec
from tasks.saliency.probe import probe_parameters, select_targets
from tasks.task import InputGroup
from tasks.vision.decompression_bombs import check_png, max_decompressed_bytes
from tasks.vision.filtering import SelectionParameters, check_candidate_labels
from tasks.vision.header import JPEG_START, ImageHeader, read_header
from tasks.vision.image import Image, check_size, decode_image, images_from_tensor, raw_size
from tasks.vision.tiff import TIFF_STARTS, check_tags, tile_pixels

IMAGE_INPUT = TensorSpec(name="image", datatype=Datatype.BYTES, shape=(-1,))
"""The declared input of vision tasks: any number of encoded images."""

_DIVISORS = (8, 4, 2)
"""The fractions of its sides at which an encoded image may be decoded."""
_BYTES_PER_PIXEL = 4
_FREE_FACTOR = 3
"""Tiles of a TIFF up to this multiple of its pixels are not charged: a tile may reach over the border."""

PredictionT = TypeVar("PredictionT", bound=Labelled)
ParametersT = TypeVar("ParametersT", bound=SelectionParameters)
ParametersT_co = TypeVar("ParametersT_co", bound=SelectionParameters, covariant=True)


class PixelBudget(msgspec.Struct):
    """Count the pixels of the images of a request, and the bytes of their decompression in the worst case."""

    limits: Limits
    _pixels: int = 0
    _decompressed: int = 0

    def admit(self, data: bytes) -> ImageHeader:
        """Check an encoded image before it is decoded, and charge it. Return its size and orientation.

        Raise INVALID_REQUEST for another format, a PNG of more data than pixels, or a TIFF whose tags are larger than
        its file; TOO_LARGE as `charge`, for a JPEG with too many scans, or for an image whose decoder needs too much
        memory.
        """
        limits = self.limits
        header = read_header(data, allow_avif_jpeg2000=limits.allow_avif_jpeg2000, max_scans=limits.max_image_scans)
        width, height, _ = header
        # As `charge`, which would be one more call for each image.
        check_size(width, height, limits.max_pixels, limits.max_image_side)
        self._pixels += width * height
        if self._pixels > limits.max_request_pixels:
            raise self._too_many_error()
        if not data.startswith(JPEG_START):
            self._check_decoding_cost(data, width, height)
        return header

    def charge(self, width: int, height: int, count: int) -> None:
        """Charge `count` images of one size before they are decoded. Raise TOO_LARGE if they exceed a limit."""
        check_size(width, height, self.limits.max_pixels, self.limits.max_image_side)
        self._pixels += width * height * count
        if self._pixels > self.limits.max_request_pixels:
            raise self._too_many_error()

    def _check_decoding_cost(self, data: bytes, width: int, height: int) -> None:
        """Reject an image that costs much more to decode than its size suggests, and charge its extra memory."""
        if data[:4] in TIFF_STARTS:
            check_tags(data)
            extra_pixels, max_pixels = tile_pixels(data) - _FREE_FACTOR * width * height, self.limits.max_pixels
            if extra_pixels > max_pixels:
                actual = f"{width}x{height} that hides {extra_pixels:,} more"
                message = f"Expected an image of at most {max_pixels:,} pixels (--max-pixels), got {actual}"
                raise InferenceError(ErrorKind.TOO_LARGE, message)
            self._pixels += max(0, extra_pixels)
            if self._pixels > self.limits.max_request_pixels:
                raise self._too_many_error()
        # Checking a PNG decompresses it once more. Skip that while even the worst case fits the budget.
        decompressed = self._decompressed + max_decompressed_bytes(data)
        if decompressed <= _BYTES_PER_PIXEL * self.limits.max_request_pixels:
            self._decompressed = decompressed
        else:
            check_png(data)

    def _too_many_error(self) -> InferenceError:
        max_pixels = self.limits.max_request_pixels
        expected = f"Expected images of at most {max_pixels:,} pixels in one request (--max-request-pixels)"
        return InferenceError(ErrorKind.TOO_LARGE, f"{expected}, got more with this one")


class ImageItem(msgspec.Struct, Generic[ParametersT_co], frozen=True, eq=False):
    """The input of a vision model: one image, and the parameters by which the task selects predictions.

    The model may leave out predictions whose scores are below `floor`, because the task would drop them.
    """

    image: Image
    parameters: ParametersT_co
    floor: float = 0.0


class ImageTask(Generic[ParametersT, PredictionT]):
    """The part of a task that is the same for all tasks with one image in each sample."""

    parameters_type: type[ParametersT]
    inputs = (IMAGE_INPUT,)

    def __init__(self, *, open_vocabulary: bool = False) -> None:
        self._open_vocabulary = open_vocabulary

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> list[InputGroup[ImageItem[ParametersT]]]:
        check_count(request.inputs, limits)
        budget = PixelBudget(limits)
        groups: list[InputGroup[ImageItem[ParametersT]]] = []
        for index, tensor in enumerate(request.inputs):
            path = f"inputs[{index}].parameters"
            parameters = read_parameters(
                self.parameters_type, defaults, request.parameters, tensor.parameters, path=path
            )
            if self._open_vocabulary:
                self.check_classes(parameters, limits, path)
            elif parameters.candidate_labels is not None:
                message = "Expected none: the model has classes of its own; choose among them with labels"
                raise invalid(message, f"{path}.candidate_labels")
            images = read_images(tensor, budget, f"inputs[{index}]")
            items = [ImageItem(image, parameters, parameters.score_threshold) for image in images]
            own_parameters = tensor.parameters if not request.parameters else request.parameters_of(index)
            groups.append(InputGroup(name=tensor.name, index=index, parameters=own_parameters, items=items))
        return groups

    def check_classes(self, parameters: ParametersT, limits: Limits, path: str) -> None:
        """Reject parameters under `path` without valid classes, for an open-vocabulary model."""
        del limits
        check_candidate_labels(parameters, path)

    def targets(
        self, prediction: PredictionT, filtered: PredictionT, label: str | None, max_objects: int, /
    ) -> PredictionT:
        del prediction
        return select_targets(filtered, label, max_objects)

    def probe(self, item: ImageItem[ParametersT], image: Image, targets: PredictionT, /) -> ImageItem[ParametersT]:
        parameters = probe_parameters(item.parameters, targets)
        return ImageItem(image, parameters, parameters.score_threshold)


def read_images(tensor: InputTensor, budget: PixelBudget, path: str) -> list[Image]:
    """Return the images of one input: each BYTES element is an encoded file, a numeric tensor is raw pixels.

    Raise INVALID_REQUEST or TOO_LARGE, naming the field under `path`.
    """
    if not isinstance(tensor, BytesTensor):
        try:
            height, width, _, count = raw_size(tensor)
            budget.charge(width, height, count)
            return images_from_tensor(tensor)
        except InferenceError as error:
            raise error.with_prefix(path) from None
    if not tensor.elements:
        raise invalid("Expected at least one image, got none", f"{path}.data")
    images: list[Image] = []
    for index, element in enumerate(tensor.elements):
        try:
            data = element.binary()
            header = budget.admit(data)
            shrink = 1
            if budget.limits.downscale is not None:
                factor = budget.limits.downscale(*header.upright_size)
                shrink = next((divisor for divisor in _DIVISORS if divisor <= factor), 1)
            images.append(decode_image(data, shrink, header))
        except InferenceError as error:
            raise error.with_prefix(f"{path}.data[{index}]") from None
    return images


def check_count(inputs: Sequence[InputTensor], limits: Limits) -> None:
    """Reject a request without inputs, or with too many images or texts, before decoding, naming `inputs`."""
    if not inputs:
        raise invalid("Expected at least one input, got an empty list", "inputs")
    count = 0
    for tensor in inputs:
        if isinstance(tensor, BytesTensor):
            count += max(1, len(tensor.elements))
        else:
            count += tensor.shape[0] if len(tensor.shape) == 4 else 1
    if count > limits.max_inputs:
        raise too_large(limits.max_inputs, "images or texts in one request (--max-inputs)", count, "inputs")
