"""Convert bodies of chariot-v2-kserve to and from the neutral request and response."""

from collections.abc import Mapping, Sequence
from operator import methodcaller

import msgspec

from app.core.protocols.inference_call import HttpResponse
from app.core.wire.bytes_elements import string_elements
from app.core.wire.json_body import read_json, read_parameters_object
from app.core.wire.json_tensors import numeric_tensor, read_datatype
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceOutput, InferenceResponse, Record
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor

WireParameters = dict[str, msgspec.Raw]

_encoder = msgspec.json.Encoder()
_records = methodcaller("records")


class WireInput(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a request's `inputs`."""

    name: str
    datatype: str
    shape: list[int]
    data: msgspec.Raw
    parameters: WireParameters | None = None


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request's body."""

    inputs: list[WireInput]
    id: str | None = None
    parameters: WireParameters | None = None


class WireOutput(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a response's `outputs`. `data` holds a list of records for each image or text of the input."""

    name: str
    shape: tuple[int]
    datatype: str
    data: Sequence[Sequence[Record]]
    parameters: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


class WireResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response's body."""

    id: str
    model_name: str
    model_version: str
    outputs: Sequence[WireOutput]


def decode(
    body: bytes, *, model_name: str, model_version: str | None, request_id: str, limits: Limits | None = None
) -> InferenceRequest:
    """Decode a request's body. `request_id` applies if the body has no id; `limits` bound its JSON.

    Raise INVALID_REQUEST naming the field.
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
        lenient_inputs=True,
    )


def encode(response: InferenceResponse) -> HttpResponse:
    """Encode a response."""
    wire = WireResponse(
        id=response.id,
        model_name=response.model_name,
        model_version=response.model_version,
        outputs=list(map(_output, response.outputs)),
    )
    return HttpResponse(content=_encoder.encode(wire))


def _tensor(wire: WireInput, path: str) -> InputTensor:
    parameters = read_parameters_object(wire.parameters, f"{path}.parameters")
    if wire.datatype == Datatype.BYTES:
        elements = string_elements(wire.data, f"{path}.data", wire.shape, f"{path}.shape")
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
