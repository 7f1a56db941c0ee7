"""gRPC messages of the Open Inference Protocol to the neutral exchange and back."""

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from app.engine.servable import Servable
from app.engine.streaming import Piece
from app.protocols.json_tensors import read_datatype
from app.protocols.kserve_v2.binary import SniffedElement, check_shape, pack, unpack_bytes, unpack_numbers
from app.protocols.kserve_v2.rendering import RequestedOutput, Wanted, render, wanted_outputs
from app.protocols.message_bounds import check_message
from app.protocols.pb import message_class
from tasks.exchange.error import InferenceError, brief, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.parameters import Positive, convert
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import BytesTensor, Datatype, InputTensor, Tensor

__all__ = ("InferMessage", "decode", "encode", "encode_failed", "encode_pieces", "encode_streamed")

_Request = message_class("inference.ModelInferRequest")
_Response = message_class("inference.ModelInferResponse")
_Streamed = message_class("inference.ModelStreamInferResponse")

_CONTENTS: dict[Datatype, str] = {
    Datatype.BOOL: "bool_contents",
    Datatype.INT8: "int_contents",
    Datatype.INT16: "int_contents",
    Datatype.INT32: "int_contents",
    Datatype.INT64: "int64_contents",
    Datatype.UINT8: "uint_contents",
    Datatype.UINT16: "uint_contents",
    Datatype.UINT32: "uint_contents",
    Datatype.UINT64: "uint64_contents",
    Datatype.FP32: "fp32_contents",
    Datatype.FP64: "fp64_contents",
    Datatype.BYTES: "bytes_contents",
}
"""The field of `InferTensorContents` that holds a datatype; FP16 has none."""

_WIDE: dict[str, np.dtype[Any]] = {"int_contents": np.dtype(np.int32), "uint_contents": np.dtype(np.uint32)}
"""What protobuf holds where one field serves several datatypes."""

_GREATEST_INT64 = 2**63 - 1
_FINAL = "triton_final_response"
_STREAMED_TEXT = "text_output"


class _OutputParameters(msgspec.Struct, frozen=True):
    """What an entry of `outputs` may ask for."""

    classification: Positive | None = None


class InferMessage:
    """A `ModelInferRequest` as it came, parsed but not read.

    Args:
        data: the serialized message.
        limits: how much there may be in it.

    Raises:
        InferenceError: INVALID_REQUEST when it is no such message; as `check_message`.
    """

    def __init__(self, data: bytes, limits: Limits | None = None) -> None:
        if limits is not None:
            check_message(data, _Request.DESCRIPTOR, limits)
        try:
            self.message = _Request.FromString(data)
        except DecodeError:
            raise invalid("Expected a ModelInferRequest, got bytes that are none") from None

    @property
    def id(self) -> str:
        """What the sender calls the request; empty when it says nothing."""
        return self.message.id

    @property
    def model_name(self) -> str:
        """The model asked."""
        return self.message.model_name

    @property
    def model_version(self) -> str | None:
        """The version asked for."""
        return self.message.model_version or None

    @property
    def wants_whole_answers(self) -> bool:
        """Whether it says in which tensors, or form, it wants its answer."""
        return bool(self.message.outputs) or "output_format" in self.message.parameters


def decode(request: InferMessage, servable: Servable) -> tuple[InferenceRequest, Wanted]:
    """Read a request, and what it asks to be answered with.

    Args:
        request: what came.
        servable: the model asked.

    Raises:
        InferenceError: INVALID_REQUEST naming the field.
    """
    message = request.message
    raw: Sequence[bytes] = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        expected = f"Expected an entry for each of the {len(message.inputs)} inputs, or none"
        raise invalid(f"{expected}, got {len(raw)}", "raw_input_contents")
    inputs = [_input(each, raw[index] if raw else None, index) for index, each in enumerate(message.inputs)]
    parameters = _parameters(message.parameters, "parameters")
    neutral = InferenceRequest(
        id=request.id,
        model_name=request.model_name,
        model_version=request.model_version,
        inputs=tuple(inputs),
        parameters=parameters,
    )
    outputs = [_requested(each, f"outputs[{index}]") for index, each in enumerate(message.outputs)]
    return neutral, wanted_outputs(servable, outputs or None, parameters.get("output_format"), binary=True)


def encode(response: InferenceResponse, servable: Servable, wanted: Wanted) -> bytes:
    """A serialized `ModelInferResponse`. Its tensors are always raw, as Triton's are."""
    return _message(response, servable, wanted).SerializeToString()


def encode_streamed(response: InferenceResponse, servable: Servable, wanted: Wanted) -> bytes:
    """The same as an item of `ModelStreamInfer`: the last for its request."""
    message = _message(response, servable, wanted)
    message.parameters[_FINAL].bool_param = True
    return _Streamed(infer_response=message).SerializeToString()


async def encode_pieces(pieces: AsyncGenerator[Piece]) -> AsyncGenerator[bytes]:
    """Each piece as an item of `ModelStreamInfer`: the BYTES tensor ``text_output`` of one element.

    Its parameters say whose answer it belongs to (`input`, `image`, `prompt`) and whether that ends with it (`final`).
    The response's own parameter `triton_final_response` is true on the last piece of the last answer.
    """
    held: Piece | None = None
    async with aclosing(pieces):
        async for piece in pieces:
            if held is not None:
                yield _piece(held, last=False)
            # Only an answer's end can be the end of all: the piece waits until it is known. The others go at once.
            held = piece if piece.final else None
            if held is None:
                yield _piece(piece, last=False)
    if held is not None:
        yield _piece(held, last=True)


def encode_failed(error: InferenceError, request_id: str) -> bytes:
    """An error as an item of `ModelStreamInfer`: its sentence, and a response with nothing but the request's id."""
    return _Streamed(error_message=str(error), infer_response=_Response(id=request_id)).SerializeToString()


def _message(response: InferenceResponse, servable: Servable, wanted: Wanted) -> Any:
    message = _Response(model_name=response.model_name, model_version=response.model_version, id=response.id)
    echoed: Mapping[str, object] = response.outputs[0].parameters if len(response.outputs) == 1 else {}
    for tensor, _ in render(response, servable, wanted):
        output = message.outputs.add(name=tensor.name, datatype=tensor.datatype.value, shape=tensor.shape)
        for name, value in echoed.items():
            _set_parameter(output.parameters[name], value)
        message.raw_output_contents.append(pack(tensor))
    return message


def _piece(piece: Piece, *, last: bool) -> bytes:
    message = _Response(model_name=piece.model_name, model_version=piece.model_version, id=piece.id)
    message.parameters[_FINAL].bool_param = last
    output = message.outputs.add(name=_STREAMED_TEXT, datatype=Datatype.BYTES.value, shape=[1])
    place = {"input": piece.input, "image": piece.image, "prompt": piece.prompt, "final": piece.final}
    for name, value in {**piece.parameters, **place}.items():
        _set_parameter(output.parameters[name], value)
    data = np.empty(1, object)
    data[0] = piece.text.encode()
    message.raw_output_contents.append(pack(Tensor(name=_STREAMED_TEXT, datatype=Datatype.BYTES, data=data)))
    return _Streamed(infer_response=message).SerializeToString()


def _input(message: Any, raw: bytes | None, index: int) -> InputTensor:
    path = f"inputs[{index}]"
    name: str = message.name
    datatype = read_datatype(message.datatype, f"{path}.datatype")
    shape = tuple(message.shape)
    check_shape(shape, f"{path}.shape")
    parameters = _parameters(message.parameters, f"{path}.parameters")
    if raw is None:
        return _typed(message, datatype, shape, parameters, path)
    if message.HasField("contents"):
        raise invalid("Expected no contents beside raw_input_contents, got both", f"{path}.contents")
    at = f"raw_input_contents[{index}]"
    if datatype is Datatype.BYTES:
        return BytesTensor(name=name, shape=shape, elements=unpack_bytes(raw, at), parameters=parameters)
    return Tensor(name=name, datatype=datatype, data=unpack_numbers(raw, datatype, shape, at), parameters=parameters)


def _typed(
    message: Any, datatype: Datatype, shape: tuple[int, ...], parameters: Mapping[str, object], path: str
) -> InputTensor:
    if datatype not in _CONTENTS:
        raise invalid(f"{datatype} has no field in contents; send it in raw_input_contents", f"{path}.datatype")
    field = _CONTENTS[datatype]
    for other, _ in message.contents.ListFields():
        if other.name != field:
            raise invalid(f"Expected {field} for {datatype}, got {other.name}", f"{path}.contents.{other.name}")
    values: Sequence[Any] = getattr(message.contents, field)
    if datatype is Datatype.BYTES:
        if not values and 0 not in shape:
            raise invalid("Expected elements here or in raw_input_contents, got none", f"{path}.contents.{field}")
        elements = [SniffedElement(each) for each in values]
        return BytesTensor(name=message.name, shape=shape, elements=elements, parameters=parameters)
    if len(values) != math.prod(shape):
        expected = f"Expected {math.prod(shape)} elements for the shape {brief(list(shape))}"
        raise invalid(f"{expected}, got {len(values)}", f"{path}.contents.{field}")
    array = _numbers(values, datatype, f"{path}.contents.{field}")
    try:
        data = array.reshape(shape)
    except (ValueError, OverflowError):
        raise invalid(f"Expected sizes that can be counted, got {brief(list(shape))}", f"{path}.shape") from None
    return Tensor(name=message.name, datatype=datatype, data=data, parameters=parameters)


def _numbers(values: Sequence[Any], datatype: Datatype, path: str) -> NDArray[Any]:
    dtype = datatype.dtype
    held = np.fromiter(values, _WIDE.get(_CONTENTS[datatype], dtype), len(values))
    if held.dtype == dtype:
        return held
    limits = np.iinfo(dtype)
    outside = np.flatnonzero((held < limits.min) | (held > limits.max))
    if outside.size:
        first = int(outside[0])
        message = f"Expected {limits.min} to {limits.max} for {datatype}, got {held[first]}"
        raise invalid(message, f"{path}[{first}]")
    return held.astype(dtype)


def _requested(message: Any, path: str) -> RequestedOutput:
    asked = convert(_parameters(message.parameters, f"{path}.parameters"), _OutputParameters, f"{path}.parameters")
    return RequestedOutput(name=message.name, classification=asked.classification, path=path)


def _parameters(messages: Mapping[str, Any], path: str) -> Mapping[str, object]:
    return {name: _parameter(messages[name], f"{path}.{name}") for name in messages}


def _parameter(message: Any, path: str) -> object:
    kind = message.WhichOneof("parameter_choice")
    if kind is None:
        raise invalid("Expected a value, got none", path)
    return getattr(message, kind)


def _set_parameter(message: Any, value: object) -> None:
    if isinstance(value, bool):
        message.bool_param = value
    elif isinstance(value, int):
        if value > _GREATEST_INT64:
            message.uint64_param = value
        else:
            message.int64_param = value
    elif isinstance(value, float):
        message.double_param = value
    else:
        message.string_param = str(value)
