"""How much of a request is worked on before it is refused."""

from collections.abc import Callable

import msgspec

from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import InputTensor, Tensor

__all__ = ("Limits", "beyond", "check_request")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds that hold for one request.

    Attributes:
        max_request_bytes: of a body, after decompression.
        max_pixels: width times height of one image, read from its header before anything is decoded.
        max_request_pixels: the same summed over all images of the request.
        max_image_side: width or height of one image, read from its header too.
        max_image_scans: passes over its pixels in which a JPEG tells them; each costs as much as a whole picture.
        max_inputs: images, or texts, in one request, counted over all of its inputs.
        max_elements: numbers and BYTES elements of tensors, counted over all inputs of the request.
        max_values: values that are written out in JSON, numbers above all, in one body.
        max_entries: what is an object of its own in one body: members of JSON objects, BYTES elements of binary
            tensors, fields of gRPC messages.
        max_json_depth: arrays and objects within each other.
        max_name_length: bytes of a name: of a JSON member, a request, an input, a parameter.
        max_prompts: prompts, counted over all images of the request.
        max_text_length: characters of one prompt or text.
        max_new_tokens: tokens generated for one prompt.
        max_explanation_samples: masked copies of images that a model is shown to explain one request.
        max_explanation_seconds: after so long an explanation makes do with the samples that it has.
        detail: how much smaller than an image of a (width, height) the model sees it, such as 3.2, where images may be
            decoded at a fraction of their size; None where they may not.
    """

    max_request_bytes: int = 64 * 1024 * 1024
    max_pixels: int = 64_000_000
    max_request_pixels: int = 256_000_000
    max_image_side: int = 32_768
    max_image_scans: int = 64
    max_inputs: int = 256
    max_elements: int = 32 * 1024 * 1024
    max_values: int = 4_000_000
    max_entries: int = 100_000
    max_json_depth: int = 100
    max_name_length: int = 1024
    max_prompts: int = 256
    max_text_length: int = 200_000
    max_new_tokens: int = 1024
    max_explanation_samples: int = 2000
    max_explanation_seconds: float = 30.0
    detail: Callable[[int, int], float] | None = None


def beyond(most: int, what: str, got: int | None = None, path: str = "") -> InferenceError:
    """A TOO_LARGE error: `most` of `what` may come, and `got` came, or simply more."""
    return InferenceError(
        ErrorKind.TOO_LARGE, f"Expected at most {most:,} {what}, got {'more' if got is None else f'{got:,}'}", path
    )


def check_request(request: InferenceRequest, limits: Limits) -> None:
    """Refuse names that are too long, and more elements than one request may have.

    Raises:
        InferenceError: TOO_LARGE, naming the field.
    """
    most = limits.max_name_length
    _check_name(request.id, most, "id")
    _check_name(request.model_name, most, "model_name")
    for name in request.parameters:
        _check_name(name, most, "parameters")
    elements = 0
    for index, tensor in enumerate(request.inputs):
        path = f"inputs[{index}]"
        _check_name(tensor.name, most, f"{path}.name")
        for name in tensor.parameters:
            _check_name(name, most, f"{path}.parameters")
        elements += _size(tensor)
        if elements > limits.max_elements:
            raise beyond(limits.max_elements, "tensor elements in one request", elements, path)


def _check_name(name: str, most: int, path: str) -> None:
    # Characters are counted first, because no text has more of them than bytes.
    if len(name) * 4 > most and (length := len(name.encode(errors="surrogatepass"))) > most:
        raise beyond(most, "bytes in a name", length, path)


def _size(tensor: InputTensor) -> int:
    return tensor.data.size if isinstance(tensor, Tensor) else len(tensor.elements)
