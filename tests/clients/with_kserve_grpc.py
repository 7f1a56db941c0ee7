"""Check KServe's gRPC client against a server: ``python -m tests.clients.with_kserve_grpc HOST:PORT``."""

import asyncio
import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from tests.clients.checks import IMAGE_OF_MODEL, TENSOR_MODELS, raised_error, run

grpc: Any = importlib.import_module("grpc")
kserve: Any = importlib.import_module("kserve")


def with_client(address: str, operation: Callable[[Any], Awaitable[Any]]) -> Any:
    """Run `operation` with a client, and return its result."""

    async def session() -> Any:
        async with kserve.InferenceGRPCClient(address) as client:
            return await operation(client)

    return asyncio.run(session())


def infer(address: str, model: str, infer_input: Any, **options: Any) -> Any:
    """Return a response as KServe's client decodes it."""
    request = kserve.InferRequest(model_name=model, infer_inputs=[infer_input], **options)
    return with_client(address, lambda client: client.infer(request))


def tensor(name: str, array: Any, datatype: str, *, binary: bool) -> Any:
    """Return an input with raw or typed contents."""
    infer_input = kserve.InferInput(name, list(array.shape), datatype)
    infer_input.set_data_from_numpy(array, binary_data=binary)
    return infer_input


def check_health(address: str) -> None:
    assert with_client(address, lambda client: client.is_server_live()) is True
    assert with_client(address, lambda client: client.is_server_ready()) is True
    for name in (*IMAGE_OF_MODEL, *TENSOR_MODELS):
        assert with_client(address, lambda client, name=name: client.is_model_ready(name)) is True


def check_tensors(address: str) -> None:
    for binary in (True, False):
        infer_input = tensor("x", np.array([1, 2], np.float32), "FP32", binary=binary)
        response = infer(address, "half_plus_two", infer_input, request_id="a1")
        assert response.outputs[0].as_numpy().tolist() == [2.5, 3.0]
        assert (response.id, response.model_name, response.model_version) == ("a1", "half_plus_two", "1")


def check_texts(address: str) -> None:
    for binary in (True, False):
        infer_input = tensor("text", np.array(["Åsa".encode(), b""], np.object_), "BYTES", binary=binary)
        texts = infer(address, "greeter", infer_input).outputs[0].as_numpy().tolist()
        assert [text if isinstance(text, str) else text.decode() for text in texts] == ["Hello, Åsa!", "Hello, !"]


def check_tasks(address: str) -> None:
    for name, image_bytes in IMAGE_OF_MODEL.items():
        infer_input = tensor("image", np.array([image_bytes], np.object_), "BYTES", binary=True)
        (output,) = infer(address, name, infer_input).outputs
        assert json.loads(output.as_numpy()[0]), name


def check_errors(address: str) -> None:
    infer_input = tensor("z", np.array([1], np.float64), "FP64", binary=True)
    for model, code in (("half_plus_two", grpc.StatusCode.INVALID_ARGUMENT), ("missing", grpc.StatusCode.NOT_FOUND)):
        error: Any = raised_error(grpc.RpcError, infer, address, model, infer_input)
        assert error.code() is code, error
        assert "'x'" in error.details() or "'missing'" in error.details()


if __name__ == "__main__":
    run(globals(), sys.argv[1])
