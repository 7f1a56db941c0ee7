"""Build requests and their inputs."""

from app.core.wire.bytes_elements import BinaryElement, StringElement
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor, InputTensor


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
