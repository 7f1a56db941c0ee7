"""Test decoding and encoding of V2 gRPC messages, and agreement with both REST forms."""

import base64
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.engine.models.servable import Servable
from app.core.proto import message_class
from app.core.protocols.kserve_v2.codec import decode as decode_rest
from app.core.protocols.kserve_v2.protobuf import decode, encode
from app.core.protocols.kserve_v2.rendering import OutputSelection
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceOutput, InferenceResponse
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec
from tasks.tensor_inference import Tensors
from tests.support.data.requests import pack_elements
from tests.support.rejection import rejects
from tests.support.servers.apps import ECHO_MODELS, echo_model
from tests.support.servers.grpc_server import message

VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False, True],
    "UINT8": [0, 1, 255],
    "UINT16": [0, 1, 65535],
    "UINT32": [0, 1, 2**32 - 1],
    "UINT64": [0, 2**53 + 1, 2**64 - 1],
    "INT8": [-128, 0, 127],
    "INT16": [-32768, 0, 32767],
    "INT32": [-(2**31), 0, 2**31 - 1],
    "INT64": [-(2**63), 2**53 + 1, 2**63 - 1],
    "FP32": [-1.5, 0.25, 3.4028234663852886e38],
    "FP64": [5e-324, 0.1, 1.7976931348623157e308],
    "BYTES": ["", 'Hej, världen \N{GRINNING FACE} \u0000 "quoted"', "{}"],
}

CONTENT_FIELDS = {
    "BOOL": "bool_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def raw(datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        return pack_elements(*(value if isinstance(value, bytes) else value.encode() for value in values))
    return np.array(values, Datatype(datatype).dtype).astype(Datatype(datatype).dtype.newbyteorder("<")).tobytes()


def typed_input(datatype: str, values: list[Any], shape: list[int] | None = None, **fields: Any) -> dict[str, Any]:
    wire_values = [value.encode() for value in values] if datatype == "BYTES" else values
    contents = {CONTENT_FIELDS[datatype]: wire_values}
    return {"name": "x", "datatype": datatype, "shape": shape or [1, len(values)], "contents": contents, **fields}


def input_header(datatype: str, shape: list[int], **fields: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": datatype, "shape": shape, **fields}


def read(
    *inputs: dict[str, Any], servable: Servable | None = None, **fields: Any
) -> tuple[InferenceRequest, OutputSelection]:
    request_message = message("ModelInferRequest", model_name="m", inputs=inputs, **fields)
    return decode(request_message, servable or echo_model(ECHO_MODELS["echo-fp32"]), Limits())


def values_of(tensor: InputTensor) -> list[Any]:
    if isinstance(tensor, BytesTensor):
        return [element.text() for element in tensor.elements]
    return tensor.data.ravel().tolist()


@pytest.mark.parametrize("datatype", VALUES)
def test_json_binary_typed_and_raw_inputs_decode_to_the_same_tensor(datatype: str) -> None:
    values, servable = VALUES[datatype], echo_model(ECHO_MODELS["echo-fp32"])
    header = {"name": "x", "datatype": datatype, "shape": [1, 3]}
    body = msgspec.json.encode({"inputs": [{**header, "data": values}]})
    from_json, _ = decode_rest(body, None, servable, model_name="m", model_version=None, limits=Limits())
    block = raw(datatype, values)
    head = msgspec.json.encode({"inputs": [{**header, "parameters": {"binary_data_size": len(block)}}]})
    from_binary, _ = decode_rest(
        head + block, str(len(head)), servable, model_name="m", model_version=None, limits=Limits()
    )
    from_typed, _ = read(typed_input(datatype, values))
    from_raw, _ = read(header, raw_input_contents=[block])
    for request in (from_json, from_binary, from_typed, from_raw):
        (tensor,) = request.inputs
        assert tensor.name == "x"
        assert tensor.shape == (1, 3)
        assert values_of(tensor) == values_of(from_json.inputs[0])
        if isinstance(tensor, Tensor):
            assert tensor.datatype == datatype
            assert tensor.data.dtype.newbyteorder("=") == Datatype(datatype).dtype


def test_raw_contents_are_read_in_the_order_of_inputs() -> None:
    blocks = [raw("FP16", [0.5, -2]), raw("FP16", [1, 3])]
    request, _ = read(*[input_header("FP16", [2])] * 2, raw_input_contents=blocks)
    assert [values_of(tensor) for tensor in request.inputs] == [[0.5, -2], [1, 3]]


def test_bytes_contents_have_no_length_prefix_and_can_be_base64() -> None:
    image = b"\x89PNG\r\n\x1a\n"
    inputs = [{**input_header("BYTES", [2]), "contents": {"bytes_contents": [image, base64.b64encode(image)]}}]
    tensor = read(*inputs)[0].inputs[0]
    assert isinstance(tensor, BytesTensor)
    assert [element.binary() for element in tensor.elements] == [image, image]


def test_parameters_of_every_type_are_read() -> None:
    wire_parameters = {
        "yes": {"bool_param": True},
        "count": {"int64_param": -3},
        "text": {"string_param": "[1]"},
        "share": {"double_param": 0.25},
        "large": {"uint64_param": 2**64 - 1},
    }
    request, wanted = read(typed_input("FP32", [1.0], parameters=wire_parameters), parameters=wire_parameters)
    expected = {"yes": True, "count": -3, "text": "[1]", "share": 0.25, "large": 2**64 - 1}
    assert request.inputs[0].parameters == expected
    assert request.parameters == expected
    assert not wanted.tensors


@pytest.mark.parametrize("binary", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("datatype", [*VALUES, "FP16"])
def test_response_is_raw_or_typed_as_requested(datatype: str, binary: bool) -> None:
    values = VALUES.get(datatype, [0.5, -2, 1])
    data = np.array(
        [[value.encode() if isinstance(value, str) else value for value in values]], Datatype(datatype).dtype
    )
    tensor = Tensor(name="x", datatype=Datatype(datatype), data=data)
    parameters = {"metadata": "[]", "flag": True, "count": 1, "large": 2**64 - 1, "share": 0.5}
    output = InferenceOutput(name="", predictions=[Tensors([tensor])], parameters=parameters)
    response = InferenceResponse(id="", model_name="m", model_version="7", outputs=[output])
    servable = echo_model([TensorSpec(name="x", datatype=Datatype(datatype), shape=(-1, -1))])
    answer = message_class("inference.ModelInferResponse").FromString(
        encode(response, servable, OutputSelection(binary=binary))
    )
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "7", "")
    (encoded_output,) = answer.outputs
    assert (encoded_output.name, encoded_output.datatype, list(encoded_output.shape)) == ("x", datatype, [1, 3])
    if binary or datatype == "FP16":
        assert not encoded_output.HasField("contents")
        assert list(answer.raw_output_contents) == [raw(datatype, values)]
    else:
        assert not answer.raw_output_contents
        contents = list(getattr(encoded_output.contents, CONTENT_FIELDS[datatype]))
        assert raw(datatype, contents) == raw(datatype, values)
    kinds = {"metadata": "string", "flag": "bool", "count": "int64", "large": "uint64", "share": "double"}
    sent = {name: getattr(encoded_output.parameters[name], f"{kind}_param") for name, kind in kinds.items()}
    assert sent == parameters


def encode_response(*tensors: Tensor, wanted: OutputSelection) -> Any:
    output = InferenceOutput(name="", predictions=[Tensors(tensors)])
    response = InferenceResponse(id="", model_name="m", model_version="7", outputs=[output])
    encoded = encode(response, echo_model(ECHO_MODELS["echo-pair"]), wanted)
    return message_class("inference.ModelInferResponse").FromString(encoded)


def test_one_output_without_a_typed_form_makes_the_response_raw() -> None:
    half = Tensor(name="half", datatype=Datatype.FP16, data=np.array([0.5], np.float16))
    single = Tensor(name="single", datatype=Datatype.FP32, data=np.array([1], np.float32))
    answer = encode_response(single, half, wanted=OutputSelection())
    assert list(answer.raw_output_contents) == [BLOCK, raw("FP16", [0.5])]
    assert not any(output.HasField("contents") for output in answer.outputs)


def test_empty_typed_tensor_has_contents() -> None:
    empty = Tensor(name="x", datatype=Datatype.FP32, data=np.zeros((0, 2), np.float32))
    answer = encode_response(empty, wanted=OutputSelection())
    assert answer.outputs[0].HasField("contents")
    assert (list(answer.outputs[0].shape), list(answer.raw_output_contents)) == ([0, 2], [])


BLOCK = raw("FP32", [1.0])

ONE, FP32, BYTES = typed_input("FP32", [1.0]), input_header("FP32", [1]), input_header("BYTES", [1])


def blocks(*contents: bytes) -> dict[str, Any]:
    return {"raw_input_contents": contents}


def output(**parameters: dict[str, object]) -> dict[str, Any]:
    return {"outputs": [{"name": "x", "parameters": parameters}]}


Case = tuple[list[dict[str, Any]], dict[str, Any], str]
BAD_REQUESTS: dict[str, Case] = {
    "contents and raw": ([ONE], blocks(BLOCK), "inputs[0].contents"),
    "empty contents and raw": ([{**FP32, "contents": {}}], blocks(BLOCK), "inputs[0].contents"),
    "too few raw": ([FP32] * 2, blocks(BLOCK), "raw_input_contents"),
    "too many raw": ([FP32], blocks(BLOCK, BLOCK), "raw_input_contents"),
    "raw without inputs": ([], blocks(BLOCK), "raw_input_contents"),
    "raw too short": ([input_header("FP32", [2])], blocks(BLOCK), "raw_input_contents[0]"),
    "raw too long": ([FP32], blocks(BLOCK + b"\0"), "raw_input_contents[0]"),
    "BYTES length truncated": ([BYTES], blocks(b"\1\0"), "raw_input_contents[0]"),
    "shape does not match elements, raw": ([BYTES], blocks(raw("BYTES", ["a", "b"])), "inputs[0].shape"),
    "unknown format": ([ONE], {"parameters": {"output_format": {"int64_param": 1}}}, "parameters.output_format"),
    "unknown output": ([ONE], {"outputs": [{"name": "y"}]}, "outputs[0].name"),
    "classification as text": (
        [ONE], output(classification={"string_param": "2"}), "outputs[0].parameters.classification",
    ),
    "shared memory of an output": (
        [ONE], output(shared_memory_byte_size={"int64_param": 4}), "outputs[0].parameters.shared_memory_byte_size",
    ),
    "shared memory of the request": (
        [ONE], {"parameters": {"shared_memory_offset": {"int64_param": 0}}}, "parameters.shared_memory_offset",
    ),
}  # fmt: skip
BAD_INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "missing data": (FP32, "contents.fp32_contents"),
    "missing elements": (BYTES, "contents.bytes_contents"),
    "too few elements": (typed_input("INT8", [1], [2]), "contents.int_contents"),
    "too many elements": (typed_input("INT8", [1, 2], [1]), "contents.int_contents"),
    "wrong contents field": ({**FP32, "contents": {"fp64_contents": [1.0]}}, "contents.fp64_contents"),
    "two contents fields": (
        {**FP32, "contents": {"fp32_contents": [1.0], "fp64_contents": [1.0]}}, "contents.fp64_contents",
    ),
    "FP16 typed": (input_header("FP16", [1], contents={"fp32_contents": [1.0]}), "datatype"),
    "unknown datatype": (input_header("FP128", [1]), "datatype"),
    "INT8 above": (typed_input("INT8", [0, 128]), "contents.int_contents[1]"),
    "INT16 below": (typed_input("INT16", [-32769]), "contents.int_contents[0]"),
    "UINT8 above": (typed_input("UINT8", [256]), "contents.uint_contents[0]"),
    "UINT16 above": (typed_input("UINT16", [65536]), "contents.uint_contents[0]"),
    "negative shape": (typed_input("FP32", [1.0], [-1]), "shape"),
    "overflowing shape": (input_header("FP32", [2**62, 2**62]), "shape"),
    "too many dimensions": (typed_input("FP32", [1.0], [1] * 70), "shape"),
    "empty parameter": ({**ONE, "parameters": {"p": {}}}, "parameters.p"),
    "shared memory of an input": (
        {**FP32, "parameters": {"shared_memory_region": {"string_param": "in"}}}, "parameters.shared_memory_region",
    ),
}  # fmt: skip
ALL_BAD: dict[str, Case] = {
    **BAD_REQUESTS,
    **{name: ([tensor], {}, f"inputs[0].{path}") for name, (tensor, path) in BAD_INPUTS.items()},
}


@pytest.mark.parametrize("case", ALL_BAD)
def test_bad_request_error_names_its_field(case: str) -> None:
    inputs, fields, path = ALL_BAD[case]
    with rejects(path=path):
        read(*inputs, **fields)
