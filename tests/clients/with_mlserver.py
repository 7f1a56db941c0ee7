"""MLServer's codecs and types against a server: ``python -m tests.clients.with_mlserver URL``."""

import importlib
import json
import sys
from typing import Any

import numpy as np

from tests.clients.checks import PICTURES, TENSOR_MODELS, run

codecs: Any = importlib.import_module("mlserver.codecs")
types: Any = importlib.import_module("mlserver.types")
httpx: Any = importlib.import_module("httpx")


def infer(url: str, model: str, request: Any) -> Any:
    """The answer as MLServer's strict types read it."""
    body = request.model_dump_json(exclude_none=True)
    response = httpx.post(f"{url}/v2/models/{model}/infer", content=body, timeout=60)
    assert response.status_code == 200, response.text
    return types.InferenceResponse.model_validate_json(response.content)


def check_metadata(url: str) -> None:
    for name in (*PICTURES, *TENSOR_MODELS):
        about = types.MetadataModelResponse.model_validate_json(
            httpx.get(f"{url}/v2/models/{name}", timeout=60).content
        )
        assert about.name == name
        assert about.inputs
        assert about.outputs
    server = types.MetadataServerResponse.model_validate_json(httpx.get(f"{url}/v2", timeout=60).content)
    assert server.name == "charioteer"


def check_numbers(url: str) -> None:
    given = codecs.NumpyCodec.encode_input("x", np.array([1, 2], np.float32))
    given.shape = [2]  # the codec makes a column of a row
    answer = infer(url, "half_plus_two", types.InferenceRequest(id="a1", inputs=[given]))
    assert answer.id == "a1"
    assert codecs.NumpyCodec.decode_output(answer.outputs[0]).tolist() == [2.5, 3.0]


def check_texts(url: str) -> None:
    given = codecs.StringCodec.encode_input("text", ["Åsa", ""], use_bytes=False)
    given.shape = [2]  # and here too
    answer = infer(url, "greeter", types.InferenceRequest(inputs=[given]))
    assert codecs.StringCodec.decode_output(answer.outputs[0]) == ["Hello, Åsa!", "Hello, !"]


def check_images(url: str) -> None:
    for name, picture in PICTURES.items():
        given = codecs.Base64Codec.encode_input("image", [picture], use_bytes=False)
        answer = infer(url, name, types.InferenceRequest(inputs=[given]))
        (text,) = codecs.StringCodec.decode_output(answer.outputs[0])
        assert json.loads(text), name


def check_tensors_of_a_task(url: str) -> None:
    given = codecs.Base64Codec.encode_input("image", [PICTURES["detector"]], use_bytes=False)
    request = types.InferenceRequest(
        inputs=[given],
        parameters=types.Parameters(output_format="tensors"),
        outputs=[types.RequestOutput(name="boxes"), types.RequestOutput(name="labels")],
    )
    boxes, labels = infer(url, "detector", request).outputs
    assert codecs.NumpyCodec.decode_output(boxes).shape == (1, 5, 4)
    assert len(codecs.StringCodec.decode_output(labels)) == 5


def check_pixels(url: str) -> None:
    given = codecs.NumpyCodec.encode_input("image", np.zeros((32, 48, 3), np.uint8))
    answer = infer(url, "classifier", types.InferenceRequest(inputs=[given]))
    assert len(json.loads(codecs.StringCodec.decode_output(answer.outputs[0])[0])) == 20


def check_repository(url: str) -> None:
    index = httpx.post(f"{url}/v2/repository/index", json={}, timeout=60)
    found = types.RepositoryIndexResponse.model_validate_json(index.content)
    assert {each.name for each in found} >= {*PICTURES, *TENSOR_MODELS}
    assert all(each.state == "READY" for each in found)


def check_errors(url: str) -> None:
    response = httpx.get(f"{url}/v2/models/nobody", timeout=60)
    assert response.status_code == 404
    assert types.InferenceErrorResponse.model_validate_json(response.content).error


if __name__ == "__main__":
    run(globals(), sys.argv[1])
