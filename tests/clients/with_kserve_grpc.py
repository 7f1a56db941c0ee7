"""KServe's gRPC client against a server: ``python -m tests.clients.with_kserve_grpc HOST:PORT``."""

import asyncio
import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from tests.clients.checks import PICTURES, TENSOR_MODELS, refusal, run

grpc: Any = importlib.import_module("grpc")
kserve: Any = importlib.import_module("kserve")


def asked(address: str, use: Callable[[Any], Awaitable[Any]]) -> Any:
    """What `use` makes of a client."""

    async def session() -> Any:
        async with kserve.InferenceGRPCClient(address) as client:
            return await use(client)

    return asyncio.run(session())


def infer(address: str, model: str, given: Any, **named: Any) -> Any:
    """The answer as KServe's client reads it."""
    request = kserve.InferRequest(model_name=model, infer_inputs=[given], **named)
    return asked(address, lambda client: client.infer(request))


def tensor(name: str, array: Any, datatype: str, *, binary: bool) -> Any:
    """An input with raw or typed contents."""
    given = kserve.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return given


def check_health(address: str) -> None:
    assert asked(address, lambda client: client.is_server_live()) is True
    assert asked(address, lambda client: client.is_server_ready()) is True
    for name in (*PICTURES, *TENSOR_MODELS):
        assert asked(address, lambda client, name=name: client.is_model_ready(name)) is True


def check_tensors(address: str) -> None:
    for binary in (True, False):
        given = tensor("x", np.array([1, 2], np.float32), "FP32", binary=binary)
        answer = infer(address, "half_plus_two", given, request_id="a1")
        assert answer.outputs[0].as_numpy().tolist() == [2.5, 3.0]
        assert (answer.id, answer.model_name, answer.model_version) == ("a1", "half_plus_two", "1")


def check_texts(address: str) -> None:
    for binary in (True, False):
        given = tensor("text", np.array(["Åsa".encode(), b""], np.object_), "BYTES", binary=binary)
        found = infer(address, "greeter", given).outputs[0].as_numpy().tolist()
        assert [each if isinstance(each, str) else each.decode() for each in found] == ["Hello, Åsa!", "Hello, !"]


def check_tasks(address: str) -> None:
    for name, picture in PICTURES.items():
        given = tensor("image", np.array([picture], np.object_), "BYTES", binary=True)
        (output,) = infer(address, name, given).outputs
        assert json.loads(output.as_numpy()[0]), name


def check_errors(address: str) -> None:
    given = tensor("z", np.array([1], np.float32), "FP32", binary=True)
    for model, code in (("half_plus_two", grpc.StatusCode.INVALID_ARGUMENT), ("nobody", grpc.StatusCode.NOT_FOUND)):
        error: Any = refusal(grpc.RpcError, infer, address, model, given)
        assert error.code() is code, error
        assert "'z'" in error.details() or "'nobody'" in error.details()


if __name__ == "__main__":
    run(globals(), sys.argv[1])
