"""Check MLServer's codecs and types against a server: ``python -m tests.clients.with_mlserver URL``."""

import importlib
import json
import sys
from typing import Any

import numpy as np

from tests.clients.checks import IMAGE_OF_MODEL, run

codecs: Any = importlib.import_module("mlserver.codecs")
types: Any = importlib.import_module("mlserver.types")
httpx: Any = importlib.import_module("httpx")


def infer(url: str, model: str, request: Any) -> Any:
    """Return a response as MLServer's strict types decode it."""
    body = request.model_dump_json(exclude_none=True)
    response = httpx.post(f"{url}/v2/models/{model}/infer", content=body, timeout=60)
    assert response.status_code == 200, response.text
    return types.InferenceResponse.model_validate_json(response.content)


def check_numbers(url: str) -> None:
    # The codec makes a column of a list of numbers.
    infer_input = codecs.NumpyCodec.encode_input("x", np.array([1, 2], np.float32))
    assert infer_input.shape == [2, 1]
    response = infer(url, "half_plus_two", types.InferenceRequest(id="a1", inputs=[infer_input]))
    assert response.id == "a1"
    assert codecs.NumpyCodec.decode_output(response.outputs[0]).tolist() == [2.5, 3.0]


def check_texts(url: str) -> None:
    infer_input = codecs.StringCodec.encode_input("text", ["Åsa", ""], use_bytes=False)
    response = infer(url, "greeter", types.InferenceRequest(inputs=[infer_input]))
    assert codecs.StringCodec.decode_output(response.outputs[0]) == ["Hello, Åsa!", "Hello, !"]


def check_requests_that_codecs_name(url: str) -> None:
    numbers = codecs.NumpyRequestCodec.encode_request(np.array([1, 2], np.float32))
    assert numbers.inputs[0].name == "input-1"
    assert codecs.NumpyCodec.decode_output(infer(url, "half_plus_two", numbers).outputs[0]).tolist() == [2.5, 3.0]
    texts = codecs.StringRequestCodec.encode_request(["Åsa"], use_bytes=False)
    assert codecs.StringCodec.decode_output(infer(url, "greeter", texts).outputs[0]) == ["Hello, Åsa!"]


def check_images(url: str) -> None:
    for name, image_bytes in IMAGE_OF_MODEL.items():
        infer_input = codecs.Base64Codec.encode_input("image", [image_bytes], use_bytes=False)
        response = infer(url, name, types.InferenceRequest(inputs=[infer_input]))
        (text,) = codecs.StringCodec.decode_output(response.outputs[0])
        assert json.loads(text), name


def check_pixels(url: str) -> None:
    infer_input = codecs.NumpyCodec.encode_input("image", np.zeros((32, 48, 3), np.uint8))
    response = infer(url, "classifier", types.InferenceRequest(inputs=[infer_input]))
    assert len(json.loads(codecs.StringCodec.decode_output(response.outputs[0])[0])) == 20


if __name__ == "__main__":
    run(globals(), sys.argv[1])
