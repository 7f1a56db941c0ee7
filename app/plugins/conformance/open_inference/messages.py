"""Send requests of the Open Inference Protocol over REST or gRPC, and read tensors: JSON, in a contents field, or raw.

Over REST, `DeclaredModel`, `InferAnswer` and `DeclaredTensor` have the field names of the messages over gRPC.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from app.clients import kserve_v2
from app.core.proto import INFERENCE, message_class
from app.plugins.conformance.calls import call, call_method, parse_request
from app.plugins.conformance.exchange import Exchange, InconclusiveError, ViolationError, quote
from app.plugins.conformance.model_names import model_in_path, model_name
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.sample_images import SAMPLE_IMAGES
from app.plugins.conformance.tensors import TEXTS, expect_form, flattened

DATATYPES: Mapping[str, tuple[str, str]] = {
    "BOOL": ("bool_contents", "?"), "BYTES": ("bytes_contents", ""),
    "INT8": ("int_contents", "<i1"), "INT16": ("int_contents", "<i2"), "INT32": ("int_contents", "<i4"),
    "UINT8": ("uint_contents", "<u1"), "UINT16": ("uint_contents", "<u2"), "UINT32": ("uint_contents", "<u4"),
    "INT64": ("int64_contents", "<i8"), "UINT64": ("uint64_contents", "<u8"),
    "FP16": ("", "<f2"), "BF16": ("", "<u2"), "FP32": ("fp32_contents", "<f4"), "FP64": ("fp64_contents", "<f8"),
}  # fmt: skip
"""The datatypes of V2's table, and BF16, which its text and its servers use.

Each has its field of `InferTensorContents` and the numpy dtype of its raw form. FP16 and BF16 have no field and are
always raw; BF16 is read as its bits. BYTES has no dtype: each raw element follows its length.
"""

_LISTS = ("/v2/models", "/v1/models")
_MAX_ELEMENTS = 4_000_000
_TEXT_NAMES = ("text", "prompt", "question", "sentence")
"""An input takes texts instead of images if its name has one of these."""
_REQUEST = "inference.ModelInferRequest"


class DeclaredTensor(msgspec.Struct):
    """An input or output of the metadata."""

    name: str
    datatype: str
    shape: list[int]


class ReturnedTensor(DeclaredTensor):
    """An output of a response."""

    data: list[Any]


class DeclaredModel(msgspec.Struct):
    """The metadata of a model."""

    name: str
    platform: str
    inputs: list[DeclaredTensor]
    outputs: list[DeclaredTensor]
    versions: Any = None


class InferAnswer(msgspec.Struct):
    """The response to an inference."""

    outputs: list[ReturnedTensor]
    id: Any = None
    model_name: Any = None


def checked_model(probe: Probe) -> str:
    """Return the name of the checked model."""
    return model_name(probe, *_LISTS)


def model_path(probe: Probe) -> str:
    """Return the path of the checked model over REST."""
    return kserve_v2.model_path(model_in_path(probe, *_LISTS))


def metadata_of(probe: Probe) -> Any:
    """Return the engine's metadata of the model: a message, or over REST `DeclaredModel`."""
    if probe.transport:
        return call_method(probe, INFERENCE, "ModelMetadata", name=checked_model(probe)).message()
    metadata = probe.get(model_path(probe)).expect_object()
    return expect_form(metadata, DeclaredModel, "name, platform, and inputs and outputs of name, datatype and shape")


def build_request(probe: Probe, *, rows: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
    """Return the fields of a request that the model can answer, with other `fields` and with added parameters.

    It is the given request, or one that is generated from the metadata. With `rows`, which are 0 and 1, it is generated
    with one element of the first dimension for each row, and the elements of 0 and 1 differ.
    """
    given = None if rows else probe.target.request
    if probe.transport:
        message = parse_request(given, _REQUEST) if given else _generate_message(probe, rows or (0,))
        inputs = [_fields_of(tensor) for tensor in message.inputs]
        request = {**_fields_of(message), "inputs": inputs, "model_name": checked_model(probe)}
        if not given and not all(_field(tensor["datatype"]) for tensor in inputs):
            request = with_raw_contents(request)
    else:
        inputs = [] if given else [_generate_input(spec, rows or (0,)) for spec in metadata_of(probe).inputs]
        request: dict[str, Any] = dict(given or {"inputs": inputs})
    if "parameters" in fields and "parameters" in request:
        fields["parameters"] = {**request["parameters"], **fields["parameters"]}
    return {**request, **fields}


def infer(probe: Probe, request: Mapping[str, Any], *, fresh: bool = False) -> Exchange:
    """Send an inference request; over gRPC, `fresh` sends it even if an equal one has a response."""
    if probe.transport:
        message = message_class(_REQUEST)(**request)
        return call(probe, INFERENCE, "ModelInfer", message, fresh=fresh)
    return probe.post_json(f"{model_path(probe)}/infer", request)


def answer_of(probe: Probe, **fields: Any) -> Any:
    """Return the response to the request of `build_request`: a message, or over REST an `InferAnswer`.

    A check also calls it to be inconclusive for an engine that rejects all requests. Raise InconclusiveError if the
    engine rejects the request. Raise ViolationError if there are no outputs, or they have another form.
    """
    exchange = infer(probe, build_request(probe, **fields))
    exchange.expect_accepted()
    answer = read_answer(exchange)
    if not answer.outputs or not all(output.name and output.datatype for output in answer.outputs):
        got = [[output.name, output.datatype, list(output.shape)] for output in answer.outputs]
        raise ViolationError(f"Expected outputs of name and datatype, got {quote(got)}")
    return answer


def read_answer(exchange: Exchange) -> Any:
    """Return the message of a response, or over REST its `InferAnswer`."""
    if exchange.answers is not None:
        return exchange.message()
    return expect_form(exchange.object(), InferAnswer, "outputs of name, datatype, shape and data")


def with_raw_contents(request: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request over gRPC with all elements in raw_input_contents."""
    if request.get("raw_input_contents"):
        return request
    inputs = [{name: value for name, value in tensor.items() if name != "contents"} for tensor in request["inputs"]]
    return {**request, "inputs": inputs, "raw_input_contents": list(map(_to_raw, request["inputs"]))}


def _fields_of(message: Any) -> dict[str, Any]:
    return {field.name: value for field, value in message.ListFields()}


def _generate_input(spec: Any, rows: Sequence[int]) -> dict[str, Any]:
    """Return an input over REST that fits the metadata: numbers, or images, or texts if the name suggests text.

    Raise InconclusiveError if it has too many elements.
    """
    shape = [1 if length < 0 else length for length in spec.shape]
    length = math.prod(shape)
    if length > _MAX_ELEMENTS:
        raise InconclusiveError(f"An input of {length} elements is too large to generate; give a body with --request")
    if len(rows) > 1:
        shape[0] = len(rows)
    elements: Sequence[object] = (False, True) if spec.datatype == "BOOL" else (0, 1)
    if spec.datatype == "BYTES":
        # JSON has bytes as base64.
        takes_text = any(name in spec.name.lower() for name in _TEXT_NAMES)
        elements = TEXTS if takes_text else [image.data for image in SAMPLE_IMAGES[:2]]
    data = [element for row in rows for element in [elements[row]] * length]
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape, "data": data}


def _generate_message(probe: Probe, rows: Sequence[int]) -> Any:
    """Return a message with generated inputs; those whose datatype has no field have no contents."""
    message = message_class(_REQUEST)()
    for tensor in (_generate_input(spec, rows) for spec in metadata_of(probe).inputs):
        elements = [element.encode() if isinstance(element, str) else element for element in tensor.pop("data")]
        field = _field(tensor["datatype"])
        message.inputs.add(**tensor, **({"contents": {field: elements}} if field and elements else {}))
    return message


def _field(datatype: str) -> str:
    return DATATYPES.get(datatype, ("", ""))[0]


def _to_raw(tensor: Mapping[str, Any]) -> bytes:
    """Return the raw form of an input: row-major, little-endian, each BYTES element preceded by its length."""
    if tensor["datatype"] not in DATATYPES:
        raise InconclusiveError(f"The datatype of {tensor['name']} is not known; give a message with --request")
    field, dtype = DATATYPES[tensor["datatype"]]
    if not field:
        return bytes(np.dtype(dtype).itemsize * math.prod(tensor.get("shape", ())))
    elements = getattr(tensor["contents"], field) if "contents" in tensor else ()
    if tensor["datatype"] == "BYTES":
        return b"".join(struct.pack("<I", len(element)) + element for element in elements)
    return np.array(elements, dtype).tobytes()


def contents_field(answer: Any, index: int) -> str:
    """Return where the elements of an output are: "raw", or the contents field that is set; empty without elements.

    Raise ViolationError if more than one of them has elements.
    """
    output = answer.outputs[index]
    fields = [field.name for field, _ in output.contents.ListFields()]
    if index < len(answer.raw_output_contents):
        fields.append("raw")
    if len(fields) > 1:
        raise ViolationError(f"{output.name}: Expected contents in one place, got {' and '.join(fields)}")
    return fields[0] if fields else ""


def elements_of(answer: Any, index: int) -> Sequence[object]:
    """Return the elements of an output: from JSON, from its contents, or raw.

    Raise ViolationError if the elements do not match the datatype.
    """
    output = answer.outputs[index]
    if isinstance(output, ReturnedTensor):
        return flattened(output.data)
    field = contents_field(answer, index)
    if field != "raw":
        return list(getattr(output.contents, field)) if field else []
    raw = answer.raw_output_contents[index]
    if output.datatype == "BYTES":
        return _split_byte_strings(output.name, raw)
    dtype = np.dtype(DATATYPES[output.datatype][1])
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
