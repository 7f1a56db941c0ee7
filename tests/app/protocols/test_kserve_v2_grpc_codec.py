"""V2 messages over gRPC as pure functions: every datatype, every fault, and agreement with both forms of REST."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.engine.servable import Servable
from app.proto import message_class
from app.protocols.kserve_v2.codec import decode as decode_rest
from app.protocols.kserve_v2.protobuf import InferMessage, decode, encode
from app.protocols.kserve_v2.rendering import Wanted
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceOutput, InferenceResponse
from tasks.exchange.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec
from tasks.tensor_inference import Tensors
from tests.support.grpc_server import message
from tests.support.served import ECHOES, echo

ROOT = Path(__file__).parents[3]

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
    "FP32": [-1.5, 0.1, 3.4e38],
    "FP64": [5e-324, 0.1, 1.7e308],
    "BYTES": ["", "Hej \N{GRINNING FACE}", "{}"],
}

CONTENTS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def raw(datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        texts = [value if isinstance(value, bytes) else value.encode() for value in values]
        return b"".join(len(each).to_bytes(4, "little") + each for each in texts)
    return np.array(values, Datatype(datatype).dtype).astype(Datatype(datatype).dtype.newbyteorder("<")).tobytes()


def typed(datatype: str, values: list[Any], shape: list[int] | None = None, **fields: Any) -> dict[str, Any]:
    given = [value.encode() for value in values] if datatype == "BYTES" else values
    contents = {CONTENTS[datatype]: given}
    return {"name": "x", "datatype": datatype, "shape": shape or [1, len(values)], "contents": contents, **fields}


def bare(datatype: str, shape: list[int], **fields: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": datatype, "shape": shape, **fields}


def read(*inputs: dict[str, Any], servable: Servable | None = None, **fields: Any) -> tuple[InferenceRequest, Wanted]:
    sent = message("ModelInferRequest", model_name="m", inputs=inputs, **fields)
    return decode(InferMessage(sent.SerializeToString()), servable or echo(ECHOES["echo-fp32"]))


def plain(tensor: InputTensor) -> list[Any]:
    if isinstance(tensor, BytesTensor):
        return [each.text() for each in tensor.elements]
    return tensor.data.ravel().tolist()


@pytest.mark.parametrize("datatype", VALUES)
def test_json_binary_typed_and_raw_are_the_same_tensor(datatype: str) -> None:
    values, servable = VALUES[datatype], echo(ECHOES["echo-fp32"])
    header = {"name": "x", "datatype": datatype, "shape": [1, 3]}
    body = msgspec.json.encode({"inputs": [{**header, "data": values}]})
    from_json, _ = decode_rest(body, None, servable, model_name="m", model_version=None)
    block = raw(datatype, values)
    head = msgspec.json.encode({"inputs": [{**header, "parameters": {"binary_data_size": len(block)}}]})
    from_binary, _ = decode_rest(head + block, str(len(head)), servable, model_name="m", model_version=None)
    from_typed, _ = read(typed(datatype, values))
    from_raw, _ = read(header, raw_input_contents=[block])
    for each in (from_json, from_binary, from_typed, from_raw):
        (tensor,) = each.inputs
        assert tensor.name == "x"
        assert tensor.shape == (1, 3)
        assert plain(tensor) == plain(from_json.inputs[0])
        if isinstance(tensor, Tensor):
            assert tensor.datatype == datatype
            assert tensor.data.dtype.newbyteorder("=") == Datatype(datatype).dtype


def test_half_precision_goes_raw() -> None:
    request, _ = read(bare("FP16", [2]), raw_input_contents=[raw("FP16", [0.5, -2])])
    assert plain(request.inputs[0]) == [0.5, -2]


def test_bytes_contents_are_elements_without_their_length_and_may_be_base64() -> None:
    picture = b"\x89PNG\r\n\x1a\n"
    sent = [{**bare("BYTES", [2]), "contents": {"bytes_contents": [picture, base64.b64encode(picture)]}}]
    tensor = read(*sent)[0].inputs[0]
    assert isinstance(tensor, BytesTensor)
    assert [each.binary() for each in tensor.elements] == [picture, picture]


def test_parameters_of_every_kind() -> None:
    sent = {
        "yes": {"bool_param": True},
        "count": {"int64_param": -3},
        "text": {"string_param": "[1]"},
        "share": {"double_param": 0.25},
        "large": {"uint64_param": 2**64 - 1},
    }
    request, wanted = read(typed("FP32", [1.0], parameters=sent), parameters=sent)
    expected = {"yes": True, "count": -3, "text": "[1]", "share": 0.25, "large": 2**64 - 1}
    assert request.inputs[0].parameters == expected
    assert request.parameters == expected
    assert not wanted.tensors


def test_what_is_asked_for() -> None:
    outputs = [{"name": "x", "parameters": {"classification": {"int64_param": 2}, "binary_data": {"bool_param": True}}}]
    format_ = {"output_format": {"string_param": "tensors"}}
    _, wanted = read(typed("FP32", [1.0]), outputs=outputs, parameters=format_)
    assert wanted.outputs is not None
    assert [(each.name, each.classification) for each in wanted.outputs] == [("x", 2)]
    assert wanted.tensors


@pytest.mark.parametrize("binary", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("datatype", [*VALUES, "FP16"])
def test_answers_have_the_form_of_the_request(datatype: str, binary: bool) -> None:
    values = VALUES.get(datatype, [0.5, -2, 1])
    data = np.array([[each.encode() if isinstance(each, str) else each for each in values]], Datatype(datatype).dtype)
    tensor = Tensor(name="x", datatype=Datatype(datatype), data=data)
    parameters = {"metadata": "[]", "flag": True, "count": 1, "large": 2**64 - 1, "share": 0.5}
    output = InferenceOutput(name="", predictions=[Tensors([tensor])], parameters=parameters)
    response = InferenceResponse(id="", model_name="m", model_version="7", outputs=[output])
    servable = echo([TensorSpec(name="x", datatype=Datatype(datatype), shape=(-1, -1))])
    answer = message_class("inference.ModelInferResponse").FromString(encode(response, servable, Wanted(binary=binary)))
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "7", "")
    (got,) = answer.outputs
    assert (got.name, got.datatype, list(got.shape)) == ("x", datatype, [1, 3])
    if binary or datatype == "FP16":
        assert not got.HasField("contents")
        assert list(answer.raw_output_contents) == [raw(datatype, values)]
    else:
        assert not answer.raw_output_contents
        held = list(getattr(got.contents, CONTENTS[datatype]))
        assert raw(datatype, held) == raw(datatype, values)
    assert got.parameters["metadata"].string_param == "[]"
    assert got.parameters["flag"].bool_param is True
    assert got.parameters["count"].int64_param == 1
    assert got.parameters["large"].uint64_param == 2**64 - 1
    assert got.parameters["share"].double_param == 0.5


def answered(*tensors: Tensor, wanted: Wanted) -> Any:
    output = InferenceOutput(name="", predictions=[Tensors(tensors)])
    response = InferenceResponse(id="", model_name="m", model_version="7", outputs=[output])
    encoded = encode(response, echo(ECHOES["echo-pair"]), wanted)
    return message_class("inference.ModelInferResponse").FromString(encoded)


def test_a_typed_request_is_read_as_wanting_a_typed_answer() -> None:
    assert not read(typed("FP32", [1.0]))[1].binary
    assert read(bare("FP32", [1]), raw_input_contents=[BLOCK])[1].binary


def test_answers_of_which_one_has_no_typed_form_are_raw_as_a_whole() -> None:
    half = Tensor(name="half", datatype=Datatype.FP16, data=np.array([0.5], np.float16))
    single = Tensor(name="single", datatype=Datatype.FP32, data=np.array([1], np.float32))
    answer = answered(single, half, wanted=Wanted())
    assert list(answer.raw_output_contents) == [BLOCK, raw("FP16", [0.5])]
    assert not any(output.HasField("contents") for output in answer.outputs)


def test_an_empty_typed_tensor_has_contents() -> None:
    empty = Tensor(name="x", datatype=Datatype.FP32, data=np.zeros((0, 2), np.float32))
    answer = answered(empty, wanted=Wanted())
    assert answer.outputs[0].HasField("contents")
    assert (list(answer.outputs[0].shape), list(answer.raw_output_contents)) == ([0, 2], [])


BLOCK = raw("FP32", [1.0])

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "contents and raw": ({"inputs": [typed("FP32", [1.0])], "raw_input_contents": [BLOCK]}, "inputs[0].contents"),
    "empty contents and raw": (
        {"inputs": [bare("FP32", [1], contents={})], "raw_input_contents": [BLOCK]},
        "inputs[0].contents",
    ),
    "too few raw": ({"inputs": [bare("FP32", [1])] * 2, "raw_input_contents": [BLOCK]}, "raw_input_contents"),
    "too many raw": ({"inputs": [bare("FP32", [1])], "raw_input_contents": [BLOCK] * 2}, "raw_input_contents"),
    "raw without inputs": ({"raw_input_contents": [BLOCK]}, "raw_input_contents"),
    "raw too short": ({"inputs": [bare("FP32", [2])], "raw_input_contents": [BLOCK]}, "raw_input_contents[0]"),
    "raw too long": (
        {"inputs": [bare("FP32", [1])], "raw_input_contents": [BLOCK + b"\0"]},
        "raw_input_contents[0]",
    ),
    "raw bool of 2": ({"inputs": [bare("BOOL", [1])], "raw_input_contents": [b"\2"]}, "raw_input_contents[0]"),
    "no data": ({"inputs": [bare("FP32", [1])]}, "inputs[0].contents.fp32_contents"),
    "no elements": ({"inputs": [bare("BYTES", [1])]}, "inputs[0].contents.bytes_contents"),
    "too few elements": ({"inputs": [typed("INT8", [1], [2])]}, "inputs[0].contents.int_contents"),
    "too many elements": ({"inputs": [typed("INT8", [1, 2], [1])]}, "inputs[0].contents.int_contents"),
    "another field": (
        {"inputs": [bare("FP32", [1], contents={"fp64_contents": [1.0]})]},
        "inputs[0].contents.fp64_contents",
    ),
    "two fields": (
        {"inputs": [bare("FP32", [1], contents={"fp32_contents": [1.0], "fp64_contents": [1.0]})]},
        "inputs[0].contents.fp64_contents",
    ),
    "FP16 typed": ({"inputs": [bare("FP16", [1], contents={"fp32_contents": [1.0]})]}, "inputs[0].datatype"),
    "unknown datatype": ({"inputs": [bare("FP128", [1])]}, "inputs[0].datatype"),
    "no datatype": ({"inputs": [bare("", [1])]}, "inputs[0].datatype"),
    "INT8 above": ({"inputs": [typed("INT8", [0, 128])]}, "inputs[0].contents.int_contents[1]"),
    "INT16 below": ({"inputs": [typed("INT16", [-32769])]}, "inputs[0].contents.int_contents[0]"),
    "UINT8 above": ({"inputs": [typed("UINT8", [256])]}, "inputs[0].contents.uint_contents[0]"),
    "UINT16 above": ({"inputs": [typed("UINT16", [65536])]}, "inputs[0].contents.uint_contents[0]"),
    "negative shape": ({"inputs": [typed("FP32", [1.0], [-1])]}, "inputs[0].shape"),
    "overflowing shape": ({"inputs": [bare("FP32", [2**62, 2**62])]}, "inputs[0].contents.fp32_contents"),
    "overflowing raw shape": (
        {"inputs": [bare("FP32", [2**62, 2**62])], "raw_input_contents": [BLOCK]},
        "raw_input_contents[0]",
    ),
    "overflowing empty shape": ({"inputs": [bare("FP32", [0, 2**62, 2**62])]}, "inputs[0].shape"),
    "too many dimensions": ({"inputs": [typed("FP32", [1.0], [1] * 70)]}, "inputs[0].shape"),
    "sizes without an end": ({"inputs": [typed("FP32", [1.0], [2**62] * 300)]}, "inputs[0].shape"),
    "sizes without an end, raw": (
        {"inputs": [bare("FP32", [2**62] * 300)], "raw_input_contents": [BLOCK]},
        "inputs[0].shape",
    ),
    "BYTES past the end": (
        {"inputs": [bare("BYTES", [1])], "raw_input_contents": [b"\xff\xff\xff\xffa"]},
        "raw_input_contents[0]",
    ),
    "BYTES length cut": ({"inputs": [bare("BYTES", [1])], "raw_input_contents": [b"\1\0"]}, "raw_input_contents[0]"),
    "empty parameter": ({"inputs": [typed("FP32", [1.0], parameters={"p": {}})]}, "inputs[0].parameters.p"),
    "shape of other elements": ({"inputs": [typed("BYTES", ["a"], [2])]}, "inputs[0].shape"),
    "shape of other elements, raw": (
        {"inputs": [bare("BYTES", [1])], "raw_input_contents": [raw("BYTES", ["a", "b"])]},
        "inputs[0].shape",
    ),
    "shared memory of an input": (
        {"inputs": [bare("FP32", [1], parameters={"shared_memory_region": {"string_param": "in"}})]},
        "inputs[0].parameters.shared_memory_region",
    ),
    "shared memory of an output": (
        {
            "inputs": [typed("FP32", [1.0])],
            "outputs": [{"name": "x", "parameters": {"shared_memory_byte_size": {"int64_param": 4}}}],
        },
        "outputs[0].parameters.shared_memory_byte_size",
    ),
    "shared memory of the request": (
        {"inputs": [typed("FP32", [1.0])], "parameters": {"shared_memory_offset": {"int64_param": 0}}},
        "parameters.shared_memory_offset",
    ),
    "unknown format": (
        {"inputs": [typed("FP32", [1.0])], "parameters": {"output_format": {"int64_param": 1}}},
        "parameters.output_format",
    ),
    "unknown output": ({"inputs": [typed("FP32", [1.0])], "outputs": [{"name": "y"}]}, "outputs[0].name"),
    "output twice": ({"inputs": [typed("FP32", [1.0])], "outputs": [{"name": "x"}] * 2}, "outputs[1].name"),
    "classification of 0": (
        {
            "inputs": [typed("FP32", [1.0])],
            "outputs": [{"name": "x", "parameters": {"classification": {"int64_param": 0}}}],
        },
        "outputs[0].parameters.classification",
    ),
    "classification as text": (
        {
            "inputs": [typed("FP32", [1.0])],
            "outputs": [{"name": "x", "parameters": {"classification": {"string_param": "2"}}}],
        },
        "outputs[0].parameters.classification",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_refused_and_named(fault: str) -> None:
    fields, path = FAULTS[fault]
    with pytest.raises(InferenceError) as caught:
        read(*fields.get("inputs", ()), **{name: value for name, value in fields.items() if name != "inputs"})
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    assert caught.value.path == path


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(InferenceError, match="ModelInferRequest"):
        InferMessage(b"\xff\xff\xff")
