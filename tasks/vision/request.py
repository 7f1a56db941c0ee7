"""Reading the images of a request, the same for every vision task."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.parameters import read_parameters
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor, Datatype, InputTensor, TensorSpec
from tasks.task import InputGroup
from tasks.vision.header import image_size, upright_size
from tasks.vision.hidden_room import hidden_room
from tasks.vision.hidden_work import check_png, check_scans, unfolds_to
from tasks.vision.image import Image, check_size, decode_image, images_from_tensor, raw_size
from tasks.vision.selection import SelectionParameters, check_own_classes, check_told_classes
from tasks.vision.tiff_tags import check_tags

__all__ = ("IMAGE_INPUT", "PixelBudget", "check_count", "image_groups", "read_images")

IMAGE_INPUT = TensorSpec(name="image", datatype=Datatype.BYTES, shape=(-1,))
"""How tasks of images declare their input: any number of encoded images."""

_FRACTIONS = (8, 4, 2)
_BYTES_PER_PIXEL = 4
_USUAL_ROOM = 3
"""So many times its pixels an image may take without being charged for it: alpha, a thumbnail, tiles that overhang."""

ItemT = TypeVar("ItemT")
ParametersT = TypeVar("ParametersT", bound=SelectionParameters)


class PixelBudget:
    """How many pixels of a request may still be decoded.

    Args:
        limits: `max_pixels` and `max_image_side` for each image, `max_request_pixels` for all of them.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.max_request_pixels
        self._unfolding = _BYTES_PER_PIXEL * limits.max_request_pixels

    def spend(self, width: int, height: int, count: int = 1) -> None:
        """Take `count` images of a size off the budget, before they are decoded.

        Raises:
            InferenceError: TOO_LARGE when one of them, or all of the request's, are more than may be decoded.
        """
        check_size(width, height, self._limits.max_pixels, self._limits.max_image_side)
        self._take(width * height * count)

    def check_hidden(self, data: bytes, width: int, height: int) -> None:
        """Refuse an encoded image that costs much more than its size tells, and charge for what it hides.

        Raises:
            InferenceError: TOO_LARGE for a JPEG of too many scans, or for an image that is decoded in the room of a far
                larger one; INVALID_REQUEST for a PNG of more data than pixels, and a TIFF of more tags than data.
        """
        check_scans(data, self._limits.max_image_scans)
        check_tags(data)
        hidden, most = hidden_room(data) - _USUAL_ROOM * width * height, self._limits.max_pixels
        if hidden > most:
            message = f"Expected an image of at most {most:,} pixels, got {width}x{height} that hides {hidden:,} more"
            raise InferenceError(ErrorKind.TOO_LARGE, message)
        self._take(max(0, hidden))
        # To look inside a PNG is to unfold it once more. Whoever sends a few has no need for that.
        work = unfolds_to(data)
        if work <= self._unfolding:
            self._unfolding -= work
        else:
            check_png(data)

    def _take(self, pixels: int) -> None:
        self._left -= pixels
        if self._left < 0:
            most = self._limits.max_request_pixels
            message = f"Expected images of at most {most:,} pixels in one request, got more with this one"
            raise InferenceError(ErrorKind.TOO_LARGE, message)

    def shrink(self, data: bytes, width: int, height: int) -> int:
        """The fraction of its sides at which an encoded image may be decoded: 1, 2, 4 or 8."""
        detail = self._limits.detail
        if detail is None:
            return 1
        smaller = detail(*upright_size(data, width, height))
        return next((each for each in _FRACTIONS if each <= smaller), 1)


def image_groups(
    request: InferenceRequest,
    defaults: Mapping[str, object],
    limits: Limits,
    parameters_type: type[ParametersT],
    item: Callable[[Image, ParametersT], ItemT],
    *,
    open_vocabulary: bool = False,
) -> list[InputGroup[ItemT]]:
    """One group for each input, one item for each image in it, with the input's parameters read as `parameters_type`.

    Args:
        request: what came.
        defaults: the model's own parameters.
        limits: what a request may cost.
        parameters_type: the parameters of the task.
        item: makes an item of an image and its parameters.
        open_vocabulary: whether the model is told its classes with each request, as `candidate_labels`.

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
        (check_told_classes if open_vocabulary else check_own_classes)(parameters, f"inputs[{index}].parameters")
        items = [item(image, parameters) for image in read_images(tensor, budget, f"inputs[{index}]")]
        groups.append(InputGroup(name=tensor.name, index=index, parameters=tensor.parameters, items=items))
    return groups


def read_images(tensor: InputTensor, budget: PixelBudget, path: str) -> list[Image]:
    """Every image of one input: each BYTES element is an encoded file, a numeric tensor is raw pixels.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming the field under `path`.
    """
    if not isinstance(tensor, BytesTensor):
        try:
            height, width, _, count = raw_size(tensor)
            budget.spend(width, height, count)
            return images_from_tensor(tensor)
        except InferenceError as error:
            raise error.under(path) from None
    if not tensor.elements:
        raise invalid("Expected at least one image, got none", f"{path}.data")
    images: list[Image] = []
    for index, element in enumerate(tensor.elements):
        try:
            data = element.binary()
            size = image_size(data)
            budget.spend(*size)
            budget.check_hidden(data, *size)
            images.append(decode_image(data, budget.shrink(data, *size)))
        except InferenceError as error:
            raise error.under(f"{path}.data[{index}]") from None
    return images


def check_count(inputs: Sequence[InputTensor], limits: Limits) -> None:
    """Refuse a request of nothing, or of more data than one request may carry, before any of it is decoded.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming `inputs`.
    """
    if not inputs:
        raise invalid("Expected at least one input, got an empty list", "inputs")
    count = sum(_data_count(tensor) for tensor in inputs)
    if count > limits.max_inputs:
        message = f"Expected at most {limits.max_inputs} images or texts in one request, got {count}"
        raise InferenceError(ErrorKind.TOO_LARGE, message, "inputs")


def _data_count(tensor: InputTensor) -> int:
    if isinstance(tensor, BytesTensor):
        return max(1, len(tensor.elements))
    return tensor.shape[0] if len(tensor.shape) == 4 else 1
