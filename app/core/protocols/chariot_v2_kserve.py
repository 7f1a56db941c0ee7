"""The protocol chariot-v2-kserve: its routes, and the conversion of its bodies."""

from collections.abc import Mapping, Sequence
from operator import methodcaller

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.chariot_paths import chariot_endpoints
from app.core.protocols.inference_call import HttpResponse, RequestHead
from app.core.protocols.protocol import Endpoint, HttpProtocol
from app.core.wire.bytes_elements import string_elements
from app.core.wire.json_body import read_json, read_parameters_object
from app.core.wire.json_tensors import numeric_tensor, read_datatype
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse, Record
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


def decode(head: RequestHead, body: bytes, context: RequestContext, limits: Limits | None = None) -> InferenceRequest:
    """Decode a request's body. The id of `context` applies if the body has none; `limits` bound its JSON.

    Raise INVALID_REQUEST naming the field.
    """
    wire = read_json(body, WireRequest, limits=limits)
    inputs: list[InputTensor] = []
    for index, tensor in enumerate(wire.inputs):
        path = f"inputs[{index}]"
        parameters = read_parameters_object(tensor.parameters, f"{path}.parameters")
        if tensor.datatype == Datatype.BYTES:
            elements = string_elements(tensor.data, f"{path}.data", tensor.shape, f"{path}.shape")
            inputs.append(
                BytesTensor(name=tensor.name, shape=tuple(tensor.shape), elements=elements, parameters=parameters)
            )
        else:
            datatype = read_datatype(tensor.datatype, f"{path}.datatype")
            inputs.append(numeric_tensor(tensor.name, datatype, tensor.shape, tensor.data, parameters, path))
    return InferenceRequest(
        id=wire.id or context.request_id,
        model_name=context.model_name,
        model_version=head.version,
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
        outputs=[
            WireOutput(
                name=output.name,
                shape=(len(output.predictions),),
                datatype=Datatype.BYTES,
                data=list(map(_records, output.predictions)),
                parameters=output.parameters or msgspec.UNSET,
            )
            for output in response.outputs
        ],
    )
    return HttpResponse(content=_encoder.encode(wire))


class ChariotV2KServe(HttpProtocol):
    """Chariot's recommended protocol: KServe's envelope with lists of plain objects."""

    name = "chariot-v2-kserve"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        return chariot_endpoints(engine, decode, encode, body=WireRequest, answer=WireResponse)
