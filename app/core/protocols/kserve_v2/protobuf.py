"""Convert gRPC messages of the Open Inference Protocol to and from the neutral request and response."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
from google.protobuf.json_format import ParseDict

from app.core.engine.models.servable import Servable
from app.core.engine.streams.text_stream import Chunk
from app.core.proto import message_class
from app.core.protocols.kserve_v2.binary import SniffedElement, binary_tensor, pack, read_timeout, reject_shared_memory
from app.core.protocols.kserve_v2.rendering import (
    OutputSelection,
    RequestedOutput,
    output_parameters,
    render,
    requested_output,
    select_outputs,
)
from app.core.wire.json_tensors import check_shape, read_datatype
from app.core.wire.proto_tensors import ElementFields, convert_exactly
from app.core.wire.protobuf_limits import parse_message
from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import Limits, too_large
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor

InferRequest = message_class("inference.ModelInferRequest")
_Response = message_class("inference.ModelInferResponse")
_Streamed = message_class("inference.ModelStreamInferResponse")

_CONTENTS = ElementFields(
    message_class("inference.InferTensorContents"),
    {
        **dict.fromkeys((Datatype.INT8, Datatype.INT16, Datatype.INT32), "int_contents"),
        **dict.fromkeys((Datatype.UINT8, Datatype.UINT16, Datatype.UINT32), "uint_contents"),
        Datatype.BOOL: "bool_contents",
        Datatype.INT64: "int64_contents",
        Datatype.UINT64: "uint64_contents",
        Datatype.FP32: "fp32_contents",
        Datatype.FP64: "fp64_contents",
        Datatype.BYTES: "bytes_contents",
    },
)
"""FP16 and BF16 have no field."""

_MAX_PLAIN_BYTES = 64 * 1024
"""The limit of messages that hold only names and versions."""

_MAX_INT64 = 2**63 - 1
_FINAL = "triton_final_response"
_STREAMED_TEXT = "text_output"


def read_message(name: str, data: bytes) -> Any:
    """Parse the message type `name`, of a call that is no inference.

    Raise INVALID_REQUEST when the bytes are not such a message, TOO_LARGE when there are too many.
    """
    if len(data) > _MAX_PLAIN_BYTES:
        raise too_large(_MAX_PLAIN_BYTES, f"bytes in a {name}", len(data))
    return parse_message(message_class(f"inference.{name}"), data)


def encode_message(name: str, content: object) -> bytes:
    """Encode `content` (structs, mappings, sequences and plain values) as the message type `name`."""
    return ParseDict(msgspec.to_builtins(content), message_class(f"inference.{name}")()).SerializeToString()


def decode(message: Any, servable: Servable, limits: Limits) -> tuple[InferenceRequest, OutputSelection]:
    """Decode a `ModelInferRequest` to the model `servable`, and the selection of outputs in it.

    Raise INVALID_REQUEST naming the field; TOO_LARGE for more raw BYTES elements than `limits` allow.
    """
    raw: Sequence[bytes] = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        expected = f"Expected an entry for each of the {len(message.inputs)} inputs, or none"
        raise invalid(f"{expected}, got {len(raw)}", "raw_input_contents")
    inputs = [
        _input(tensor, raw[index] if raw else None, index, limits.max_entries)
        for index, tensor in enumerate(message.inputs)
    ]
    parameters = _parameters(message.parameters, "parameters")
    reject_shared_memory(parameters, "parameters")
    inference_request = InferenceRequest(
        id=message.id,
        model_name=message.model_name,
        model_version=message.model_version or None,
        inputs=tuple(inputs),
        parameters=parameters,
        timeout=read_timeout(parameters),
        lenient_inputs=True,
    )
    outputs: list[RequestedOutput] = []
    for index, output in enumerate(message.outputs):
        path = f"outputs[{index}]"
        outputs.append(requested_output(output.name, _parameters(output.parameters, f"{path}.parameters"), path))
    return inference_request, select_outputs(servable, outputs, parameters.get("output_format"), binary=bool(raw))


def encode(
    response: InferenceResponse, servable: Servable, selection: OutputSelection, *, streamed: bool = False
) -> bytes:
    """Return a serialized `ModelInferResponse`, with raw tensors if the request had raw tensors, else typed ones.

    As in KServe, all tensors are raw if one is FP16 or BF16, which have no typed form. If it is `streamed`, return the
    response as the last item of `ModelStreamInfer` for its request.
    """
    message = _Response(model_name=response.model_name, model_version=response.model_version, id=response.id)
    echoed = output_parameters(response)
    tensors = [tensor for tensor, _ in render(response, servable, selection)]
    raw = selection.binary or any(tensor.datatype not in _CONTENTS.names for tensor in tensors)
    for tensor in tensors:
        _add_output(message, tensor, echoed, raw=raw)
    if streamed:
        message.parameters[_FINAL].bool_param = True
        message = _Streamed(infer_response=message)
    return message.SerializeToString()


async def encode_chunks(chunks: AsyncGenerator[Chunk], *, raw: bool) -> AsyncGenerator[bytes]:
    """Yield each chunk as an item of `ModelStreamInfer`: a BYTES tensor ``text_output`` with one element, raw or typed.

    The tensor's parameters name the answer that the chunk belongs to (`input`, `image`, `prompt`), whether it ends
    there (`final`), and then what it locates (`grounding`, JSON). The response's parameter `triton_final_response` is
    true for the last chunk of the last answer.
    """
    pending: Chunk | None = None
    async with aclosing(chunks):
        async for chunk in chunks:
            if pending is not None:
                yield _encode_chunk(pending, last=False, raw=raw)
            # Hold back an answer's last chunk until it is known whether another answer follows. Send others at once.
            pending = chunk if chunk.final else None
            if pending is None:
                yield _encode_chunk(chunk, last=False, raw=raw)
    if pending is not None:
        yield _encode_chunk(pending, last=True, raw=raw)


def encode_error(error: InferenceError, request_id: str) -> bytes:
    """Return an error as an item of `ModelStreamInfer`: the message, and a response with only the request's id."""
    return _Streamed(error_message=str(error), infer_response=_Response(id=request_id)).SerializeToString()


def _encode_chunk(chunk: Chunk, *, last: bool, raw: bool) -> bytes:
    message = _Response(model_name=chunk.model_name, model_version=chunk.model_version, id=chunk.id)
    message.parameters[_FINAL].bool_param = last
    position = {"input": chunk.input, "image": chunk.image, "prompt": chunk.prompt, "final": chunk.final}
    if chunk.grounding is not None:
        position["grounding"] = msgspec.json.encode(chunk.grounding).decode()
    tensor = Tensor(name=_STREAMED_TEXT, datatype=Datatype.BYTES, data=np.array([chunk.text.encode()], object))
    _add_output(message, tensor, {**chunk.parameters, **position}, raw=raw)
    return _Streamed(infer_response=message).SerializeToString()


def _add_output(message: Any, tensor: Tensor, parameters: Mapping[str, object], *, raw: bool) -> None:
    output = message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    for name, value in parameters.items():
        _set_parameter(output.parameters[name], value)
    if raw:
        message.raw_output_contents.append(pack(tensor))
        return
    output.contents.SetInParent()
    getattr(output.contents, _CONTENTS.names[tensor.datatype]).extend(tensor.data.ravel().tolist())


def _input(message: Any, raw: bytes | None, index: int, max_elements: int) -> InputTensor:
    path = f"inputs[{index}]"
    name: str = message.name
    datatype = read_datatype(message.datatype, f"{path}.datatype")
    shape = tuple(message.shape)
    check_shape(shape, f"{path}.shape")
    parameters = _parameters(message.parameters, f"{path}.parameters")
    reject_shared_memory(parameters, f"{path}.parameters")
    if raw is None:
        return _decode_contents(message, datatype, shape, parameters, path)
    if message.HasField("contents"):
        raise invalid("Expected no contents beside raw_input_contents, got both", f"{path}.contents")
    return binary_tensor(name, datatype, shape, raw, parameters, path, f"raw_input_contents[{index}]", max_elements)


def _decode_contents(
    message: Any, datatype: Datatype, shape: tuple[int, ...], parameters: Mapping[str, object], path: str
) -> InputTensor:
    if datatype not in _CONTENTS.names:
        raise invalid(f"{datatype} has no field in contents; send it in raw_input_contents", f"{path}.datatype")
    values = _CONTENTS.read(message.contents, datatype, shape, f"{path}.contents")
    if datatype is Datatype.BYTES:
        elements = [SniffedElement(value) for value in values]
        return BytesTensor(name=message.name, shape=shape, elements=elements, parameters=parameters)
    numbers = convert_exactly(
        _CONTENTS.to_array(values, datatype), datatype, f"{path}.contents.{_CONTENTS.names[datatype]}"
    )
    return Tensor(name=message.name, datatype=datatype, data=numbers.reshape(shape), parameters=parameters)


def _parameters(messages: Mapping[str, Any], path: str) -> Mapping[str, object]:
    parameters: dict[str, object] = {}
    # Iterating protobuf's maps by item would call Python for each.
    for name in messages:
        message = messages[name]
        kind = message.WhichOneof("parameter_choice")
        if kind is None:
            raise invalid("Expected a value, got none", f"{path}.{name}")
        parameters[name] = getattr(message, kind)
    return parameters


def _set_parameter(message: Any, value: object) -> None:
    if isinstance(value, bool):
        message.bool_param = value
    elif isinstance(value, int):
        if value > _MAX_INT64:
            message.uint64_param = value
        else:
            message.int64_param = value
    elif isinstance(value, float):
        message.double_param = value
    else:
        message.string_param = str(value)
