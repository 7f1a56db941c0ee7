"""Build requests of V2 over gRPC, and read and write tensor elements: in the field of their datatype, or raw."""

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.conformance.check import InconclusiveError, ViolationError
from app.conformance.client.calls import GrpcCall, call, call_method, expect_accepted, first_response, parse_request
from app.conformance.client.model_names import model_name
from app.conformance.client.probe import Probe
from app.conformance.tensors import generate_data
from app.proto import INFERENCE, message_class

FIELDS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The field of `InferTensorContents` for each datatype; FP16 and BF16 have none and are always raw."""

_RAW: Mapping[str, str] = {
    "BOOL": "?",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "FP16": "<f2",
    "BF16": "<u2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"""The numpy dtype of the raw form; BF16 is read as its bits."""


def metadata_of(probe: Probe) -> Any:
    """Return the engine's metadata of the model."""
    return first_response(call_method(probe, INFERENCE, "ModelMetadata", name=model_name(probe)))


def build_request(probe: Probe) -> Any:
    """Return a request that the model can answer: the given one, or one generated from the metadata."""
    if probe.target.request:
        request = parse_request(probe.target.request, "inference.ModelInferRequest")
        request.model_name = model_name(probe)
        return request
    request = message_class("inference.ModelInferRequest")(model_name=model_name(probe))
    specs = [(spec, *_generate_input(spec)) for spec in metadata_of(probe).inputs]
    for spec, shape, elements in specs:
        tensor = request.inputs.add(name=spec.name, datatype=spec.datatype, shape=shape)
        if elements:
            getattr(tensor.contents, FIELDS[spec.datatype]).extend(elements)
    return request if all(elements is not None for _, _, elements in specs) else with_raw_contents(request)


def with_raw_contents(request: Any) -> Any:
    """Return a copy of `request` with all elements in raw_input_contents."""
    raw_request = message_class("inference.ModelInferRequest")()
    raw_request.CopyFrom(request)
    if not raw_request.raw_input_contents:
        raw_request.raw_input_contents.extend([_to_raw(tensor) for tensor in request.inputs])
        for tensor in raw_request.inputs:
            tensor.ClearField("contents")
    return raw_request


def infer(probe: Probe, request: Any, *, fresh: bool = False) -> GrpcCall:
    """Call `ModelInfer`."""
    return call(probe, INFERENCE, "ModelInfer", request, fresh=fresh)


def expect_outputs(probe: Probe) -> Any:
    """Return the response to the given or generated request.

    Raises:
        InconclusiveError: the engine rejected it, or the response has no outputs.
    """
    answer = expect_accepted(infer(probe, build_request(probe)))
    if not answer.outputs:
        raise InconclusiveError("There are no outputs")
    return answer


def _generate_input(spec: Any) -> tuple[Sequence[int], list[object] | None]:
    """Return a shape that fits the metadata, and elements, or None for datatypes that must be raw."""
    shape = [1 if length < 0 else length for length in spec.shape]
    if spec.datatype not in FIELDS:
        return shape, None
    elements = generate_data(spec.datatype, shape, spec.name)
    if spec.datatype != "BYTES":
        return shape, elements
    return shape, [_to_bytes(str(element)) for element in elements]


def _to_raw(tensor: Any) -> bytes:
    """Return the raw form of an input: row-major, little-endian, each BYTES element preceded by its length."""
    if tensor.datatype == "BYTES":
        return b"".join(struct.pack("<I", len(element)) + element for element in tensor.contents.bytes_contents)
    dtype = np.dtype(_RAW[tensor.datatype])
    if tensor.datatype not in FIELDS:
        return bytes(dtype.itemsize * math.prod(tensor.shape))
    return np.array(getattr(tensor.contents, FIELDS[tensor.datatype]), dtype).tobytes()


def contents_field(answer: Any, index: int) -> str:
    """Return where the elements of an output are: "raw", or the contents field that is set; empty without elements.

    Raises:
        ViolationError: more than one of them has elements.
    """
    output = answer.outputs[index]
    fields = [field.name for field, _ in output.contents.ListFields()]
    if index < len(answer.raw_output_contents):
        fields.append("raw")
    if len(fields) > 1:
        raise ViolationError(f"{output.name}: Expected contents in one place, got {' and '.join(fields)}")
    return fields[0] if fields else ""


def elements_of(answer: Any, index: int) -> Sequence[object]:
    """Return the elements of an output, from its contents or raw.

    Raises:
        ViolationError: the elements do not match the datatype.
    """
    output = answer.outputs[index]
    field = contents_field(answer, index)
    if field != "raw":
        return list(getattr(output.contents, field)) if field else []
    raw = answer.raw_output_contents[index]
    if output.datatype == "BYTES":
        return _split_byte_strings(output.name, raw)
    if output.datatype not in _RAW:
        raise ViolationError(f"{output.name}: Expected a datatype of the table, got {output.datatype}")
    dtype = np.dtype(_RAW[output.datatype])
    if len(raw) % dtype.itemsize:
        raise ViolationError(f"{output.name}: Expected {dtype.itemsize} bytes an element, got {len(raw)} bytes")
    return np.frombuffer(raw, dtype).tolist()


def _split_byte_strings(name: str, raw: bytes) -> Sequence[bytes]:
    elements: list[bytes] = []
    offset = 0
    while offset < len(raw):
        end = offset + 4
        length = int.from_bytes(raw[offset:end], "little")
        if end + length > len(raw):
            raise ViolationError(f"{name}: Expected each element behind its length, got {length} at byte {offset}")
        elements.append(raw[end : end + length])
        offset = end + length
    return elements


def _to_bytes(generated: str) -> bytes:
    """Decode a generated image from base64, because gRPC carries raw bytes; encode text as UTF-8."""
    try:
        return base64.b64decode(generated, validate=True)
    except ValueError:
        return generated.encode()
