"""Convert bodies of chariot-v2-kserve to and from the neutral request and response."""

from operator import methodcaller

import msgspec

from app.protocols.chariot_v2_kserve.wire import WireInput, WireOutput, WireRequest, WireResponse
from app.wire.bytes_elements import string_elements
from app.wire.json_body import read_json, read_parameters_object
from app.wire.json_tensors import numeric_tensor, read_datatype
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceOutput, InferenceResponse
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor

_encoder = msgspec.json.Encoder()
_records = methodcaller("records")


def decode(
    body: bytes, *, model_name: str, model_version: str | None, request_id: str, limits: Limits | None = None
) -> InferenceRequest:
    """Decode a request's body. `request_id` applies if the body has no id; `limits` bound its JSON.

    Raises:
        InferenceError: INVALID_REQUEST naming the field.
    """
    wire = read_json(body, WireRequest, limits=limits)
    inputs: list[InputTensor] = []
    for index, wire_input in enumerate(wire.inputs):
        inputs.append(_tensor(wire_input, f"inputs[{index}]"))
    return InferenceRequest(
        id=wire.id or request_id,
        model_name=model_name,
        model_version=model_version,
        inputs=tuple(inputs),
        parameters=read_parameters_object(wire.parameters, "parameters") if wire.parameters else {},
    )


def encode(response: InferenceResponse) -> bytes:
    """Encode a response's body."""
    return _encoder.encode(
        WireResponse(
            id=response.id,
            model_name=response.model_name,
            model_version=response.model_version,
            outputs=list(map(_output, response.outputs)),
        )
    )


def _tensor(wire: WireInput, path: str) -> InputTensor:
    parameters = read_parameters_object(wire.parameters, f"{path}.parameters")
    if wire.datatype == Datatype.BYTES:
        elements = string_elements(wire.data, f"{path}.data")
        return BytesTensor(name=wire.name, shape=tuple(wire.shape), elements=elements, parameters=parameters)
    datatype = read_datatype(wire.datatype, f"{path}.datatype")
    return numeric_tensor(wire.name, datatype, wire.shape, wire.data, parameters, path)


def _output(output: InferenceOutput) -> WireOutput:
    return WireOutput(
        name=output.name,
        shape=(len(output.predictions),),
        datatype=Datatype.BYTES,
        data=list(map(_records, output.predictions)),
        parameters=output.parameters or msgspec.UNSET,
    )
