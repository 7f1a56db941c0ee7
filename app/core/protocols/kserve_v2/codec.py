"""Convert REST bodies of the Open Inference Protocol to and from the neutral request and response."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from app.core.engine.models.servable import Servable
from app.core.protocols.kserve_v2.binary import (
    SniffedElement,
    binary_tensor,
    bytes_tensor,
    pack,
    read_timeout,
    reject_shared_memory,
    split_body,
    unpack_numbers,
)
from app.core.protocols.kserve_v2.rendering import (
    OutputSelection,
    output_parameters,
    render,
    requested_output,
    select_outputs,
)
from app.core.protocols.kserve_v2.wire import WireInput, WireOutput, WireRequest, WireResponse
from app.core.wire.bytes_elements import string_elements
from app.core.wire.json_body import read_json, read_parameters_object
from app.core.wire.json_tensors import check_shape, numeric_tensor, read_datatype
from tasks.inference.error import invalid
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest, convert
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor

_BINARY_SIZE = "binary_data_size"
_encoder = msgspec.json.Encoder()


def decode(
    body: bytes,
    header_length: str | None,
    servable: Servable,
    *,
    model_name: str,
    model_version: str | None,
    limits: Limits,
) -> tuple[InferenceRequest, OutputSelection]:
    """Decode a request's body, and the selection of outputs in it.

    Raise INVALID_REQUEST or TOO_LARGE, naming the field.

    Args:
        body: JSON, JSON with binary tensors, or one binary tensor.
        header_length: the header Inference-Header-Content-Length, if present.
        servable: the requested model.
        model_name: its name.
        model_version: the requested version.
        limits: limits for the JSON and the number of BYTES elements.
    """
    json, binary = split_body(body, header_length)
    if json is None:
        tensor = _raw_input(binary, servable)
        request = InferenceRequest(id="", model_name=model_name, model_version=model_version, inputs=(tensor,))
        return request, OutputSelection(binary=True)
    wire = read_json(json, WireRequest, limits=limits)
    inputs: list[InputTensor] = []
    position = 0
    for index, wire_input in enumerate(wire.inputs):
        tensor, position = _tensor(wire_input, binary, position, f"inputs[{index}]", limits.max_entries)
        inputs.append(tensor)
    if position != len(binary):
        raise invalid(f"Expected {position} bytes of tensors after the JSON, got {len(binary)}")
    parameters = read_parameters_object(wire.parameters, "parameters")
    reject_shared_memory(parameters, "parameters")
    request = InferenceRequest(
        id=wire.id or "",
        model_name=model_name,
        model_version=model_version,
        inputs=tuple(inputs),
        parameters=parameters,
        timeout=read_timeout(parameters),
        lenient_inputs=True,
    )
    binary_output = convert(parameters.get("binary_data_output") or False, bool, "parameters.binary_data_output")
    outputs = [
        requested_output(output.name, output.parameters or {}, f"outputs[{index}]")
        for index, output in enumerate(wire.outputs or ())
    ]
    return request, select_outputs(servable, outputs, parameters.get("output_format"), binary_output)


def encode(response: InferenceResponse, servable: Servable, selection: OutputSelection) -> tuple[bytes, int | None]:
    """Return a response's body, and the length of its JSON if binary tensors follow, else None.

    Raise INVALID_REQUEST for FP16 or BF16 that is not requested as binary.
    """
    blocks: list[bytes] = []
    outputs: list[WireOutput] = []
    echoed = output_parameters(response)
    for tensor, as_binary in render(response, servable, selection):
        parameters: dict[str, object] = {**echoed}
        data: Sequence[Any] | msgspec.UnsetType = msgspec.UNSET
        if as_binary:
            block = pack(tensor)
            blocks.append(block)
            parameters[_BINARY_SIZE] = len(block)
        else:
            data = _json_data(tensor)
        outputs.append(
            WireOutput(
                name=tensor.name,
                datatype=tensor.datatype,
                shape=tensor.shape,
                data=data,
                parameters=parameters or msgspec.UNSET,
            )
        )
    json = _encoder.encode(
        WireResponse(
            model_name=response.model_name,
            model_version=response.model_version,
            outputs=outputs,
            id=response.id or msgspec.UNSET,
        )
    )
    if not any(blocks):
        return json, None
    return b"".join((json, *blocks)), len(json)


def _tensor(
    wire: WireInput, binary: memoryview, position: int, path: str, max_elements: int
) -> tuple[InputTensor, int]:
    """Return one input, and the position of the next input in the binary part."""
    datatype = read_datatype(wire.datatype, f"{path}.datatype")
    check_shape(wire.shape, f"{path}.shape")
    parameters = dict(read_parameters_object(wire.parameters, f"{path}.parameters"))
    reject_shared_memory(parameters, f"{path}.parameters")
    size = parameters.pop(_BINARY_SIZE, None)
    if (size is None) == isinstance(wire.data, msgspec.UnsetType):
        raise invalid(f"Expected either data or the parameter {_BINARY_SIZE}", path)
    if isinstance(wire.data, msgspec.UnsetType):
        length = convert(size, int, f"{path}.parameters.{_BINARY_SIZE}")
        if length < 0 or position + length > len(binary):
            actual = f"{length}, with {len(binary) - position} bytes left after the JSON"
            raise invalid(f"Expected the size of a block of bytes, got {actual}", f"{path}.parameters.{_BINARY_SIZE}")
        block = binary[position : position + length]
        tensor = binary_tensor(wire.name, datatype, wire.shape, block, parameters, path, f"{path}.data", max_elements)
        return tensor, position + length
    return _decode_json(wire, datatype, wire.data, parameters, path), position


def _decode_json(
    wire: WireInput, datatype: Datatype, data: msgspec.Raw, parameters: Mapping[str, object], path: str
) -> InputTensor:
    if datatype is Datatype.BYTES:
        elements = string_elements(data, f"{path}.data", wire.shape, f"{path}.shape")
        return bytes_tensor(wire.name, wire.shape, elements, parameters, path)
    if not datatype.has_json_form:
        raise invalid(f"{datatype} has no form in JSON; send it with the binary extension", f"{path}.datatype")
    return numeric_tensor(wire.name, datatype, wire.shape, data, parameters, path)


def _raw_input(data: memoryview, servable: Servable) -> InputTensor:
    """Return a model's only input, whose bytes are the whole body: one element, or a batch of one.

    If several dimensions are free, the first ones are 1, and the last one follows from the number of bytes.
    """
    if len(servable.inputs) != 1:
        raise invalid(f"Expected JSON: the model takes {len(servable.inputs)} inputs, and the body can only be one")
    (spec,) = servable.inputs
    if spec.datatype is Datatype.BYTES:
        return BytesTensor(name=spec.name, shape=(1,), elements=[SniffedElement(bytes(data))])
    free_dimensions = [index for index, size in enumerate(spec.shape) if size == -1]
    shape = [1 if index in free_dimensions[:-1] else size for index, size in enumerate(spec.shape)]
    if len(free_dimensions) == 1 and free_dimensions[0] == 0 and len(shape) > 1:
        shape[0] = 1
    elif free_dimensions:
        known_bytes = spec.datatype.dtype.itemsize * int(np.prod([size for size in shape if size != -1]))
        shape[free_dimensions[-1]] = len(data) // known_bytes if known_bytes else 0
    check_shape(shape, "body")
    return Tensor(name=spec.name, datatype=spec.datatype, data=unpack_numbers(data, spec.datatype, shape, "body"))


def _json_data(tensor: Tensor) -> Sequence[Any]:
    flat = tensor.data.ravel()
    if not tensor.datatype.has_json_form:
        message = f"{tensor.datatype} has no form in JSON; request {tensor.name!r} with binary_data"
        raise invalid(message, "outputs")
    if tensor.datatype is Datatype.BYTES:
        try:
            return [element.decode() for element in flat]
        except UnicodeDecodeError:
            raise invalid(
                f"{tensor.name!r} holds bytes that are not text; request it with binary_data", "outputs"
            ) from None
    return flat.tolist()
