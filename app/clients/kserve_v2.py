"""The Open Inference Protocol, V2, over REST and gRPC."""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.clients.protocol import ClientProtocol, Parameters, encode_base64, read_elements
from app.core.proto import message_class

_LENGTH_BYTES = 4


def model_path(model: str) -> str:
    """Return the path of a model, whose name is percent-encoded."""
    return f"/v2/models/{model}"


def image_request(data: bytes, parameters: Parameters) -> Mapping[str, Any]:
    """Return the body of a request with one image."""
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [encode_base64(data)]}
    return {"inputs": [{**tensor, "parameters": parameters}]}


def records_of(answer: Any) -> Any:
    """Return the records of the first output."""
    return read_elements(answer["outputs"][0]["data"])


def _message(data: bytes, parameters: Parameters) -> Any:
    request = message_class("inference.ModelInferRequest")()
    image = request.inputs.add(name="image", datatype="BYTES", shape=[1])
    image.contents.bytes_contents.append(data)
    for name, value in parameters.items():
        _set_parameter(image.parameters[name], value)
    return request


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


def _records_of_message(data: bytes) -> Any:
    answer = message_class("inference.ModelInferResponse").FromString(data)
    if answer.raw_output_contents:
        # In raw contents, the length precedes each BYTES element.
        return read_elements([answer.raw_output_contents[0][_LENGTH_BYTES:]])
    return read_elements([*answer.outputs[0].contents.bytes_contents])


PROTOCOL = ClientProtocol(
    name="v2", path=lambda model: f"{model_path(model)}/infer", request=image_request, records=records_of
)
GRPC_PROTOCOL = ClientProtocol(
    name="v2-grpc",
    path=lambda _: "/inference.GRPCInferenceService/ModelInfer",
    request=_message,
    records=_records_of_message,
    rpc=True,
)
