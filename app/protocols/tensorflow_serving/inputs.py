"""Tensors by name as the inputs of a neutral request."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from app.protocols.input_names import PROMPTS
from app.protocols.tensorflow_serving.predicting import Form
from app.protocols.tensorflow_serving.signatures import PROMPTS_INPUT, Signature
from tasks.exchange.error import InferenceError, invalid
from tasks.exchange.tensor import BytesTensor, InputTensor, Tensor
from tasks.vision.request import IMAGE_INPUT

__all__ = ("model_inputs", "named")

_RANK_OF_GREY_ROWS = 3
_DATA = re.compile(r"^\.data(?=\[|$)")


def model_inputs(tensors: Mapping[str, InputTensor], form: Form, signature: Signature) -> tuple[InputTensor, ...]:
    """What the task is given: images as one input, or, when each has prompts of its own, as one input each.

    Raises:
        InferenceError: INVALID_REQUEST for several images or texts in one row, or prompts that are not one row for each
            image.
    """
    if signature.tensors:
        return tuple(tensors.values())
    for name, tensor in tensors.items():
        if name != PROMPTS and isinstance(tensor, BytesTensor):
            _check_one_in_each_place(tensor)
    images = tensors.get(IMAGE_INPUT.name)
    if images is None:
        return tuple(tensors.values())
    if isinstance(images, Tensor) and form is Form.ROW and len(images.shape) == _RANK_OF_GREY_ROWS:
        images = msgspec.structs.replace(images, data=images.data[..., None])
    prompts = tensors.get(PROMPTS)
    if prompts is None:
        return (images,)
    rows = _text_rows(prompts)
    separate = _separate(images)
    if len(rows) != len(separate):
        message = f"Expected prompts for each of the {len(separate)} images, got {len(rows)} rows of them"
        raise invalid(message, PROMPTS)
    return tuple(
        msgspec.structs.replace(image, parameters={PROMPTS: row}) for image, row in zip(separate, rows, strict=True)
    )


def named(error: InferenceError, inputs: Sequence[InputTensor]) -> InferenceError:
    """An error about ``inputs[0]``, which no sender of this protocol has heard of, about the input by its name."""
    for index, tensor in enumerate(inputs):
        place = f"inputs[{index}]"
        if error.path == place or error.path.startswith((f"{place}.", f"{place}[")):
            rest = _DATA.sub("", error.path.removeprefix(place))
            return InferenceError(error.kind, error.message, f"{tensor.name}{rest}")
    return error


def _check_one_in_each_place(tensor: BytesTensor) -> None:
    places = tensor.shape[0] if tensor.shape else 1
    if len(tensor.elements) != places:
        message = f"Expected one image or text in each of {places} places, got {len(tensor.elements)}"
        raise invalid(message, tensor.name)


def _separate(images: InputTensor) -> Sequence[InputTensor]:
    if isinstance(images, BytesTensor):
        return [BytesTensor(name=images.name, shape=(1,), elements=[each]) for each in images.elements]
    pixels = images.data if len(images.shape) > _RANK_OF_GREY_ROWS else images.data[None]
    return [Tensor(name=images.name, datatype=images.datatype, data=each) for each in pixels]


def _text_rows(prompts: InputTensor) -> list[list[str]]:
    if not isinstance(prompts, BytesTensor) or len(prompts.shape) > len(PROMPTS_INPUT.shape):
        raise invalid("Expected texts, or a list of texts for each image", PROMPTS)
    texts: list[str] = []
    for index, element in enumerate(prompts.elements):
        try:
            texts.append(element.text())
        except InferenceError as error:
            raise error.under(f"{PROMPTS}[{index}]") from None
    count = prompts.shape[0] if prompts.shape else 1
    size = len(texts) // count if count else 0
    return [texts[start * size : (start + 1) * size] for start in range(count)]
