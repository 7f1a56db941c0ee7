"""Send images to a server over gRPC: the Open Inference Protocol, and GRPS."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import msgspec
from google.protobuf.message import DecodeError

from app.plugins.evaluation.clients import RETRY_DELAYS_S, read_elements
from app.plugins.evaluation.dataset import Item
from app.plugins.evaluation.runner import InferenceClient, InferenceClientError, Records
from app.plugins.grps.proto import message_class

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_OK = 200

Call = Callable[[str, Any, str], Any]
"""Takes the path of a method, a request, and the name of the response's message; returns the response."""


@contextmanager
def open_grpc_client(
    address: str,
    protocol: str,
    model: str,
    parameters: Mapping[str, object],
    timeout: float,
    headers: Mapping[str, str],
    credentials: grpc.ChannelCredentials | None = None,
) -> Generator[InferenceClient]:
    """Yield a client with one channel, which several threads may use. It retries a few times if the server is busy.

    The protocol is ``v2-grpc``, or ``grps-grpc``, which needs no name for the only model. The question of an item is
    added to the parameters. Without credentials, there is no TLS.
    """
    metadata = [(name.lower(), value) for name, value in headers.items()]
    infer = _infer_v2 if protocol == "v2-grpc" else _infer_grps

    def call(method: str, request: Any, response_name: str) -> Any:
        body, response = request.SerializeToString(), message_class(response_name)
        for delay in (*RETRY_DELAYS_S, None):
            try:
                return response.FromString(channel.unary_unary(method)(body, timeout=timeout, metadata=metadata))
            except grpc.RpcError as error:
                call_error: Any = error
                if call_error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or delay is None:
                    raise InferenceClientError(f"{call_error.code().name}: {call_error.details()}") from None
            time.sleep(delay)
        raise AssertionError

    def predict(item: Item, data: bytes) -> Records:
        try:
            return msgspec.convert(infer(call, model, data, item.with_question(parameters)), list[dict[str, object]])
        except (msgspec.MsgspecError, DecodeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise InferenceClientError(f"The answer has no records: {error}") from None

    channel: Any
    with (
        grpc.insecure_channel(address, options=_UNLIMITED)
        if credentials is None
        else grpc.secure_channel(address, credentials, options=_UNLIMITED)
    ) as channel:
        yield predict


def _infer_v2(call: Call, model: str, data: bytes, parameters: Mapping[str, object]) -> Any:
    request = message_class("inference.ModelInferRequest")(model_name=model)
    image = request.inputs.add(name="image", datatype="BYTES", shape=[1])
    image.contents.bytes_contents.append(data)
    for name, value in parameters.items():
        _set_parameter(image.parameters[name], value)
    answer = call("/inference.GRPCInferenceService/ModelInfer", request, "inference.ModelInferResponse")
    if answer.raw_output_contents:
        # In raw contents, four bytes with the length precede each BYTES element.
        return read_elements([answer.raw_output_contents[0][4:]])
    return read_elements([*answer.outputs[0].contents.bytes_contents])


def _infer_grps(call: Call, model: str, data: bytes, parameters: Mapping[str, object]) -> Any:
    request = message_class("grps.protos.v1.GrpsMessage")(model=model)
    request.gmap.s_b["image"] = data
    request.gmap.s_s["image.parameters"] = msgspec.json.encode(parameters).decode()
    answer = call("/grps.protos.v1.GrpsService/Predict", request, "grps.protos.v1.GrpsMessage")
    if answer.status.code != _OK:
        raise InferenceClientError(f"{answer.status.code}: {answer.status.msg}")
    return msgspec.json.decode(answer.gmap.s_s["image"])


def _set_parameter(parameter: Any, value: object) -> None:
    """Set a parameter. The Open Inference Protocol has no list parameters, so send lists as JSON text."""
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = value if isinstance(value, str) else msgspec.json.encode(value).decode()
