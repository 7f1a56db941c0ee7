"""KServe's REST client against a server: ``python -m tests.clients.with_kserve URL``."""

import asyncio
import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from tests.clients.checks import PICTURES, SCENE, TENSOR_MODELS, refusal, run

httpx: Any = importlib.import_module("httpx")
kserve: Any = importlib.import_module("kserve")


def asked(url: str, use: Callable[[Any], Awaitable[Any]]) -> Any:
    """What `use` makes of a client."""

    async def session() -> Any:
        async with kserve.InferenceRESTClient(kserve.inference_client.RESTConfig(protocol="v2")) as client:
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


if __name__ == "__main__":
    run(globals(), sys.argv[1])
