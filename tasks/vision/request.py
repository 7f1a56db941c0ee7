"""Read the images of a request, for all vision tasks."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import Limits
from tasks.inference.parameters import read_parameters
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, TensorSpec
from tasks.task import InputGroup
from tasks.vision.decoder_memory import decoder_pixels
from tasks.vision.decompression_bombs import check_png, check_scans, max_decompressed_bytes
from tasks.vision.filtering import SelectionParameters, check_candidate_labels, reject_candidate_labels
from tasks.vision.header import image_size, upright_size
from tasks.vision.image import Image, check_size, decode_image, images_from_tensor, raw_size
from tasks.vision.tiff_tags import check_tags

__all__ = ("IMAGE_INPUT", "PixelBudget", "check_count", "image_groups", "read_images")

IMAGE_INPUT = TensorSpec(name="image", datatype=Datatype.BYTES, shape=(-1,))
"""The declared input of vision tasks: any number of encoded images."""

_DIVISORS = (8, 4, 2)
_BYTES_PER_PIXEL = 4
_FREE_FACTOR = 3
"""Decoder memory up to this multiple of the pixels is not charged: alpha, a thumbnail, tiles over the border."""

ItemT = TypeVar("ItemT")
ParametersT = TypeVar("ParametersT", bound=SelectionParameters)


class PixelBudget:
    """Count the pixels that a request may still decode.

    Args:
        limits: `max_pixels` and `max_image_side` for each image, `max_request_pixels` for all images.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._remaining = limits.max_request_pixels
        self._decompression_budget = _BYTES_PER_PIXEL * limits.max_request_pixels

    def charge(self, width: int, height: int, count: int = 1) -> None:
        """Charge `count` images of one size before they are decoded.

        Raises:
            InferenceError: TOO_LARGE if one image, or all images of the request, exceed a limit.
        """
        check_size(width, height, self._limits.max_pixels, self._limits.max_image_side)
        self._charge(width * height * count)

    def check_decoding_cost(self, data: bytes, width: int, height: int) -> None:
        """Reject an encoded image that costs much more to decode than its size suggests, and charge its extra memory.

        Raises:
            InferenceError: TOO_LARGE for a JPEG with too many scans, or an image whose decoder needs too much memory;
                INVALID_REQUEST for a PNG of more data than pixels, or a TIFF whose tags are larger than its file.
        """
        check_scans(data, self._limits.max_image_scans)
        check_tags(data)
        extra_pixels, max_pixels = decoder_pixels(data) - _FREE_FACTOR * width * height, self._limits.max_pixels
        if extra_pixels > max_pixels:
            actual = f"{width}x{height} that hides {extra_pixels:,} more"
            raise InferenceError(
                ErrorKind.TOO_LARGE, f"Expected an image of at most {max_pixels:,} pixels, got {actual}"
            )
        self._charge(max(0, extra_pixels))
        # Checking a PNG decompresses it once more. Skip that while even the worst case fits the budget.
        size = max_decompressed_bytes(data)
        if size <= self._decompression_budget:
            self._decompression_budget -= size
        else:
            check_png(data)

    def _charge(self, pixels: int) -> None:
        self._remaining -= pixels
        if self._remaining < 0:
            max_pixels = self._limits.max_request_pixels
            message = f"Expected images of at most {max_pixels:,} pixels in one request, got more with this one"
            raise InferenceError(ErrorKind.TOO_LARGE, message)

    def divisor(self, data: bytes, width: int, height: int) -> int:
        """Return the divisor of the sides at which an encoded image may be decoded: 1, 2, 4 or 8."""
        downscale = self._limits.downscale
        if downscale is None:
            return 1
        factor = downscale(*upright_size(data, width, height))
        return next((divisor for divisor in _DIVISORS if divisor <= factor), 1)


def image_groups(
    request: InferenceRequest,
    defaults: Mapping[str, object],
    limits: Limits,
    parameters_type: type[ParametersT],
    make_item: Callable[[Image, ParametersT], ItemT],
    *,
    open_vocabulary: bool = False,
) -> list[InputGroup[ItemT]]:
    """Return one group for each input, with one item for each of its images.

    Args:
        request: the request.
        defaults: the parameters of the model's settings.
        limits: limits on one request.
        parameters_type: the parameters of the task.
        make_item: create an item from an image and its parameters.
        open_vocabulary: whether each request gives the classes as `candidate_labels`.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming the field.
    """
    check_count(request.inputs, limits)
    budget = PixelBudget(limits)
    groups: list[InputGroup[ItemT]] = []
    for index, tensor in enumerate(request.inputs):
        parameters = read_parameters(
            parameters_type, defaults, request.parameters, tensor.parameters, path=f"inputs[{index}].parameters"
        )
        (check_candidate_labels if open_vocabulary else reject_candidate_labels)(
            parameters, f"inputs[{index}].parameters"
        )
        items = [make_item(image, parameters) for image in read_images(tensor, budget, f"inputs[{index}]")]
        groups.append(InputGroup(name=tensor.name, index=index, parameters=request.parameters_of(index), items=items))
    return groups


def read_images(tensor: InputTensor, budget: PixelBudget, path: str) -> list[Image]:
    """Return the images of one input: each BYTES element is an encoded file, a numeric tensor is raw pixels.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming the field under `path`.
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
            size = image_size(data)
            budget.charge(*size)
            budget.check_decoding_cost(data, *size)
            images.append(decode_image(data, budget.divisor(data, *size)))
        except InferenceError as error:
            raise error.with_prefix(f"{path}.data[{index}]") from None
    return images


def check_count(inputs: Sequence[InputTensor], limits: Limits) -> None:
    """Reject a request without inputs, or with too many images or texts, before decoding.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming `inputs`.
    """
    if not inputs:
        raise invalid("Expected at least one input, got an empty list", "inputs")
    count = sum(_sample_count(tensor) for tensor in inputs)
    if count > limits.max_inputs:
        message = f"Expected at most {limits.max_inputs} images or texts in one request, got {count}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, "inputs")


def _sample_count(tensor: InputTensor) -> int:
    if isinstance(tensor, BytesTensor):
        return max(1, len(tensor.elements))
    return tensor.shape[0] if len(tensor.shape) == 4 else 1
