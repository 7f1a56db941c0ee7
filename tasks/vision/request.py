"""Reading the images of a request, the same for every vision task."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.parameters import read_parameters
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor, Datatype, InputTensor, TensorSpec
from tasks.task import InputGroup
from tasks.vision.image import Image, decode_image, images_from_tensor

__all__ = ("IMAGE_INPUT", "check_count", "image_groups", "read_images")

IMAGE_INPUT = TensorSpec(name="image", datatype=Datatype.BYTES, shape=(-1,))
"""How tasks of images declare their input: any number of encoded images."""

ItemT = TypeVar("ItemT")
ParametersT = TypeVar("ParametersT")


def image_groups(
    request: InferenceRequest,
    defaults: Mapping[str, object],
    limits: Limits,
    parameters_type: type[ParametersT],
    item: Callable[[Image, ParametersT], ItemT],
) -> list[InputGroup[ItemT]]:
    """One group for each input, one item for each image in it, with the input's parameters read as `parameters_type`.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming the field.
    """
    check_count(request.inputs, limits)
    groups: list[InputGroup[ItemT]] = []
    for index, tensor in enumerate(request.inputs):
        parameters = read_parameters(
            parameters_type, defaults, request.parameters, tensor.parameters, path=f"inputs[{index}].parameters"
        )
        items = [item(image, parameters) for image in read_images(tensor, limits, f"inputs[{index}]")]
        groups.append(InputGroup(name=tensor.name, parameters=tensor.parameters, items=items))
    return groups


def read_images(tensor: InputTensor, limits: Limits, path: str) -> list[Image]:
    """Every image of one input: each BYTES element is an encoded file, a numeric tensor is raw pixels.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming the field under `path`.
    """
    if not isinstance(tensor, BytesTensor):
        try:
            return images_from_tensor(tensor, limits.max_pixels)
        except InferenceError as error:
            raise error.under(path) from None
    if not tensor.elements:
        raise invalid("Expected at least one image, got none", f"{path}.data")
    images: list[Image] = []
    for index, element in enumerate(tensor.elements):
        try:
            images.append(decode_image(element.binary(), limits.max_pixels))
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
