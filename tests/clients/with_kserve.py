"""KServe's REST client, V2 and V1, against a server: ``python -m tests.clients.with_kserve URL``.

CloudEvents are written and read by the library that KServe itself uses.
"""

import asyncio
import base64
import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from tests.clients.checks import PICTURES, SCENE, TENSOR_MODELS, refusal, run

httpx: Any = importlib.import_module("httpx")
kserve: Any = importlib.import_module("kserve")
events: Any = importlib.import_module("cloudevents.http")
conversion: Any = importlib.import_module("cloudevents.conversion")


def asked(url: str, use: Callable[[Any], Awaitable[Any]], protocol: str = "v2") -> Any:
    """What `use` makes of a client."""

    async def session() -> Any:
        async with kserve.InferenceRESTClient(kserve.inference_client.RESTConfig(protocol=protocol)) as client:
            return await use(client)

    return asyncio.run(session())


def infer(url: str, model: str, *inputs: Any, **named: Any) -> Any:
    """The answer as KServe's client reads it."""
    data = kserve.InferRequest(model_name=model, infer_inputs=list(inputs), **named)
    return asked(url, lambda client: client.infer(url, data, model_name=model))


def tensor(name: str, array: Any, datatype: str, *, binary: bool) -> Any:
    """An input with its data in JSON or behind it."""
    given = kserve.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return given


def check_health(url: str) -> None:
    assert asked(url, lambda client: client.is_server_live(url)) is True
    assert asked(url, lambda client: client.is_server_ready(url)) is True
    for name in (*PICTURES, *TENSOR_MODELS):
        assert asked(url, lambda client, name=name: client.is_model_ready(url, name)) is True
    assert asked(url, lambda client: client.is_model_ready(url, "nobody")) is False


def check_tensors(url: str) -> None:
    for binary in (True, False):
        given = tensor("x", np.array([1, 2], np.float32), "FP32", binary=binary)
        answer = infer(url, "half_plus_two", given, request_id="a1")
        assert answer.outputs[0].as_numpy().tolist() == [2.5, 3.0]
        assert (answer.id, answer.model_name) == ("a1", "half_plus_two")


def check_binary_answers(url: str) -> None:
    given = tensor("x", np.array([1, 2], np.float32), "FP32", binary=True)
    answer = infer(url, "half_plus_two", given, parameters={"binary_data_output": True})
    assert answer.outputs[0].as_numpy().tolist() == [2.5, 3.0]


def check_texts(url: str) -> None:
    given = kserve.InferInput("text", [2], "BYTES", data=["Åsa", ""])
    answer = infer(url, "greeter", given)
    assert [str(each) for each in answer.outputs[0].as_numpy().tolist()] == ["Hello, Åsa!", "Hello, !"]


def check_tasks(url: str) -> None:
    for name, picture in PICTURES.items():
        given = tensor("image", np.array([picture], np.object_), "BYTES", binary=True)
        (output,) = infer(url, name, given).outputs
        assert output.name == "predictions"
        assert json.loads(output.as_numpy()[0]), name


def check_tasks_as_tensors(url: str) -> None:
    given = tensor("image", np.array([SCENE], np.object_), "BYTES", binary=True)
    answer = infer(url, "detector", given, parameters={"output_format": "tensors"})
    found = {each.name: each.as_numpy() for each in answer.outputs}
    assert found["num_detections"].tolist() == [5]
    assert found["boxes"].shape == (1, 5, 4)


def check_errors(url: str) -> None:
    given = tensor("z", np.array([1], np.float32), "FP32", binary=False)
    for model, status in (("half_plus_two", "400"), ("nobody", "404")):
        said = str(refusal(httpx.HTTPStatusError, infer, url, model, given))
        assert status in said
        assert "'z'" in said or "'nobody'" in said


def predict(url: str, model: str, *instances: Any, **body: Any) -> Any:
    """The answer of V1, which KServe's client gives as it is."""
    data = {"instances": instances, **body}
    return asked(url, lambda client: client.infer(url, data, model_name=model), "v1")


def ready(url: str, model: str) -> Any:
    """Whether V1 says that a model can answer."""
    return asked(url, lambda client: client.is_model_ready(url, model), "v1")


def explain(url: str, model: str, *instances: Any, **parameters: Any) -> Any:
    """The answer of V1, and the reasons for it."""
    data = {"instances": instances, "parameters": parameters}
    return asked(url, lambda client: client.explain(url, model, data), "v1")


def image(picture: bytes) -> dict[str, str]:
    """An instance as KServe's image transformers write it."""
    return {"b64": base64.b64encode(picture).decode()}


def check_v1_health(url: str) -> None:
    assert asked(url, lambda client: client.is_server_live(url), "v1") is True
    for name in (*PICTURES, *TENSOR_MODELS):
        assert ready(url, name) is True
    assert "Model with name nobody does not exist." in str(refusal(httpx.HTTPStatusError, ready, url, "nobody"))


def check_v1_not_ready(url: str) -> None:
    assert httpx.post(f"{url}/v2/repository/models/half_plus_three/unload", timeout=60).status_code == 200
    assert ready(url, "half_plus_three") is False
    assert "503" in str(refusal(httpx.HTTPStatusError, predict, url, "half_plus_three", 1))
    assert httpx.post(f"{url}/v2/repository/models/half_plus_three/load", timeout=60).status_code == 200
    assert predict(url, "half_plus_three", 1) == {"predictions": [3.5]}


def check_v1_tensors(url: str) -> None:
    assert predict(url, "half_plus_two", 1.0, 2.0, 5.0) == {"predictions": [2.5, 3.0, 4.5]}
    assert predict(url, "greeter", "Åsa", {"b64": "Qm8="}) == {"predictions": ["Hello, Åsa!", "Hello, Bo!"]}


def check_v1_tasks(url: str) -> None:
    for name, picture in PICTURES.items():
        given = tensor("image", np.array([picture], np.object_), "BYTES", binary=True)
        (output,) = infer(url, name, given).outputs
        assert predict(url, name, image(picture)) == {"predictions": [json.loads(output.as_numpy()[0])]}, name


def check_v1_explanations(url: str) -> None:
    answer = explain(url, "detector", image(SCENE), samples=16, format="data")
    assert len(answer["predictions"][0]) == len(answer["explanations"][0]) == 5
    saliency = answer["explanations"][0][0]["saliency"]
    assert list(np.array(saliency["data"]).shape) == saliency["shape"]
    assert "501" in str(refusal(httpx.HTTPStatusError, explain, url, "half_plus_two", 1))


def check_v1_events(url: str) -> None:
    attributes = {"type": "com.example.picture", "source": "/cameras/7"}
    event = events.CloudEvent(attributes, {"instances": [1.0, 2.0]})
    for written in (conversion.to_binary, conversion.to_structured):
        headers, body = written(event)
        response = httpx.post(f"{url}/v1/models/half_plus_two:predict", headers=headers, content=body, timeout=60)
        assert response.status_code == 200, response.text
        answer = events.from_http(response.headers, response.content)
        assert answer.data == {"predictions": [2.5, 3.0]}
        assert answer["type"] == "io.kserve.inference.response"
        assert answer["source"] == "io.kserve.inference.half_plus_two"
        assert answer["specversion"] == "1.0"
        assert answer["id"] != event["id"]
    headers, body = conversion.to_structured(events.CloudEvent({**attributes, "datacontenttype": "image/jpeg"}, SCENE))
    response = httpx.post(f"{url}/v1/models/detector:predict", headers=headers, content=body, timeout=60)
    assert len(events.from_http(response.headers, response.content).data["predictions"][0]) == 5


def check_v1_errors(url: str) -> None:
    for model, instance, status, words in (
        ("half_plus_two", "a", "400", "instances[0]"),
        ("detector", {"b64": "YQ=="}, "400", "instances[0].b64"),
        ("nobody", 1, "404", "Model with name nobody does not exist."),
    ):
        said = str(refusal(httpx.HTTPStatusError, predict, url, model, instance))
        assert status in said
        assert words in said


if __name__ == "__main__":
    run(globals(), sys.argv[1])
