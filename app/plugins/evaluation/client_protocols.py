"""The requests and answers of protocols, as clients see them. Plugins add others (``evaluation.clients``).

It shares no code with the server, so that it works with any engine.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pybase64

from app.core.proto import message_class

Call = Callable[[str, Any, str], Any]
"""Takes the path of a method, a request, and the name of the response's message; returns the response."""


class HttpClientProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """The requests and answers of one protocol.

    Attributes:
        name: the name in ``charioteer conform``.
        path: returns the inference path for a model's name, empty for the only model.
        request: returns the arguments of `httpx.Client.post` for an image and parameters.
        records: extracts the records from the answer.
        takes_parameters: whether the protocol supports parameters.
        needs_model: whether the path names the model.
    """

    name: str
    path: Callable[[str], str]
    request: Callable[[bytes, Mapping[str, object]], Mapping[str, Any]]
    records: Callable[[Any], Any]
    takes_parameters: bool = True
    needs_model: bool = True


class GrpcClientProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol over gRPC: `infer` returns the records for a model's name, an image and parameters."""

    name: str
    infer: Callable[[Call, str, bytes, Mapping[str, object]], Any]
    needs_model: bool = True


def read_elements(data: Any) -> Any:
    """Return the records of the only image: the output is a list of records, a list in a list, or one JSON text."""
    if len(data) == 1 and not isinstance(data[0], Mapping):
        return msgspec.json.decode(data[0]) if isinstance(data[0], str | bytes) else data[0]
    return data


def encode_base64(data: bytes) -> str:
    """Return base64 as text."""
    return pybase64.b64encode(data).decode()


def _v2_body(data: bytes, parameters: Mapping[str, object]) -> Mapping[str, Any]:
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [encode_base64(data)]}
    return {"json": {"inputs": [{**tensor, "parameters": parameters}]}}


def _read_v2(answer: Any) -> Any:
    return read_elements(answer["outputs"][0]["data"])


def _chariot_path(model: str) -> str:
    return f"/v2/models/m-{model.lower().removeprefix('m-')}/infer" if model else "/infer"


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


PROTOCOLS = (
    HttpClientProtocol(
        name="chariot-v2-kserve", path=_chariot_path, request=_v2_body, records=_read_v2, needs_model=False
    ),
    HttpClientProtocol(
        name="chariot-v2",
        path=_chariot_path,
        request=lambda data, parameters: {"json": {"input": encode_base64(data), "parameters": parameters}},
        records=lambda answer: answer["output"],
        needs_model=False,
    ),
    HttpClientProtocol(name="v2", path=lambda model: f"/v2/models/{model}/infer", request=_v2_body, records=_read_v2),
    GrpcClientProtocol(name="v2-grpc", infer=_infer_v2),
)
"""The protocols that every server has."""
