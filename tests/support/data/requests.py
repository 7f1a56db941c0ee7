"""Build requests and their inputs, and run them."""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.engine.models.servable import Servable
from app.core.wire.bytes_elements import BinaryElement, StringElement
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor


def text_input(*texts: str, name: str = "args", **parameters: object) -> BytesTensor:
    """Return an input of texts."""
    elements = [StringElement(text) for text in texts]
    return BytesTensor(name=name, shape=(len(texts),), elements=elements, parameters=parameters)


def file_input(*files: bytes, name: str = "image", **parameters: object) -> BytesTensor:
    """Return an input of encoded images, or of other bytes."""
    elements = [BinaryElement(file) for file in files]
    return BytesTensor(name=name, shape=(len(files),), elements=elements, parameters=parameters)


def request(*inputs: InputTensor, **parameters: object) -> InferenceRequest:
    """Return a request to the model m."""
    return InferenceRequest(id="r", model_name="m", inputs=inputs, parameters=parameters)


def pixel_input(pixels: NDArray[np.uint8], name: str = "image", **parameters: object) -> Tensor:
    """Return an input of raw pixels, of one image or several."""
    return Tensor(name=name, datatype=Datatype.UINT8, data=pixels, parameters=parameters)


def predict(servable: Servable, *inputs: InputTensor, **parameters: object) -> list[Any]:
    """Return the predictions for a request, of all inputs in their order."""
    outputs = servable.predict(request(*inputs, **parameters), Limits()).outputs
    return [prediction for output in outputs for prediction in output.predictions]


def pack_elements(*elements: bytes) -> bytes:
    """Return the block of V2 for BYTES elements: each behind its length."""
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)
