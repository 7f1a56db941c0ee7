"""Check the Open Inference Protocol, V2, over gRPC."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from app.conformance.check import Check, InconclusiveError, Level, NotApplicableError, ViolationError, expect, quote
from app.conformance.client.calls import (
    CLIENT_ERRORS,
    GrpcCall,
    call_method,
    expect_accepted,
    expect_reasons,
    expect_refusal,
    expect_refusals,
    first_response,
)
from app.conformance.client.model_names import model_name
from app.conformance.client.probe import Probe
from app.conformance.open_inference.messages import (
    FIELDS,
    build_request,
    contents_field,
    elements_of,
    expect_outputs,
    infer,
    metadata_of,
    with_raw_contents,
)
from app.conformance.tensors import DATATYPES
from app.proto import INFERENCE

_UNKNOWN = "conform-unknown"


def _expect_true(field: str, exchange: GrpcCall) -> None:
    if not getattr(first_response(exchange), field):
        raise ViolationError(f"Expected {field} to be true, got false")


def _server_metadata(probe: Probe) -> None:
    metadata = first_response(call_method(probe, INFERENCE, "ServerMetadata"))
    if not metadata.name or not metadata.version:
        raise ViolationError(f"Expected name and version, got {quote(metadata.name)} and {quote(metadata.version)}")


def _model_metadata(probe: Probe) -> None:
    metadata = metadata_of(probe)
    expect(metadata.name == model_name(probe), "the model's name", metadata.name)
    for name in ("inputs", "outputs"):
        specs = getattr(metadata, name)
        if not specs or not all(spec.name and spec.datatype for spec in specs):
            raise ViolationError(f"Expected {name} of name, datatype and shape, got {quote(_describe_specs(specs))}")


def _describe_specs(specs: Sequence[Any]) -> Sequence[object]:
    return [[spec.name, spec.datatype, list(spec.shape)] for spec in specs]


def _datatypes(probe: Probe) -> None:
    metadata = metadata_of(probe)
    for spec in (*metadata.inputs, *metadata.outputs):
        if spec.datatype not in DATATYPES:
            raise ViolationError(f"Expected a datatype of the table, got {quote(spec.datatype)} of {quote(spec.name)}")


def _infers(probe: Probe) -> None:
    answer = expect_accepted(infer(probe, build_request(probe)))
    if not answer.outputs or not all(output.name and output.datatype for output in answer.outputs):
        raise ViolationError(f"Expected outputs of name and datatype, got {quote(_describe_specs(answer.outputs))}")


def _names(probe: Probe) -> None:
    declared = [spec.name for spec in metadata_of(probe).outputs]
    for output in expect_outputs(probe).outputs:
        expect(output.name in declared, f"one of {quote(declared)}", output.name)


def _specs(probe: Probe) -> Sequence[tuple[Any, Any]]:
    """Return each output with its spec from the metadata."""
    declared = {spec.name: spec for spec in metadata_of(probe).outputs}
    return [(output, declared[output.name]) for output in expect_outputs(probe).outputs if output.name in declared]


def _output_datatypes(probe: Probe) -> None:
    for output, spec in _specs(probe):
        if output.datatype != spec.datatype:
            raise ViolationError(f"{spec.name}: Expected {spec.datatype}, got {quote(output.datatype)}")


def _output_shapes(probe: Probe) -> None:
    for output, spec in _specs(probe):
        got, expected = list(output.shape), list(spec.shape)
        if len(got) != len(expected) or any(e not in (-1, g) for g, e in zip(got, expected, strict=True)):
            raise ViolationError(f"{spec.name}: Expected {quote(expected)}, got {quote(got)}")


def _contents_fields(probe: Probe) -> None:
    answer = expect_outputs(probe)
    outputs, raw = len(answer.outputs), len(answer.raw_output_contents)
    expect(raw in (0, outputs), f"no raw_output_contents, or {outputs}, one for each output", raw)
    for index, output in enumerate(answer.outputs):
        field = contents_field(answer, index)
        expected = FIELDS.get(output.datatype, "raw")
        if field not in ("", "raw", expected):
            raise ViolationError(f"{output.name}: Expected elements of {output.datatype} in {expected}, got {field}")


def _counts(probe: Probe) -> None:
    answer = expect_outputs(probe)
    for index, output in enumerate(answer.outputs):
        got, expected = len(elements_of(answer, index)), math.prod(output.shape)
        expect(got == expected, f"{expected} elements by its shape", got, output.name)


def _id(probe: Probe) -> None:
    request = build_request(probe)
    request.id = "conform-1"
    expect((got := expect_accepted(infer(probe, request)).id) == "conform-1", "the id conform-1", got)


def _model_name(probe: Probe) -> None:
    expect((got := expect_outputs(probe).model_name) == model_name(probe), "the model's name", got)


def _values(answer: Any) -> Sequence[object]:
    return [(output.name, list(elements_of(answer, index))) for index, output in enumerate(answer.outputs)]


def _raw_matches(probe: Probe) -> None:
    request = build_request(probe)
    if request.raw_input_contents:
        raise NotApplicableError("About models that accept contents")
    first = _values(expect_outputs(probe))
    if first != _values(first_response(infer(probe, request, fresh=True))):
        raise InconclusiveError("The model gives different answers to the same request")
    expect((got := _values(first_response(infer(probe, with_raw_contents(request))))) == first, quote(first), got)


def _requested_outputs(probe: Probe) -> None:
    name = expect_outputs(probe).outputs[-1].name
    request = build_request(probe)
    request.outputs.add(name=name)
    got = [output.name for output in expect_accepted(infer(probe, request)).outputs]
    expect(got == [name], f"only {quote(name)}", got)


def _unknown_parameters(probe: Probe) -> None:
    expect_outputs(probe)
    request = build_request(probe)
    request.parameters[_UNKNOWN].int64_param = 1
    first_response(infer(probe, request))


def _call_unknown_model(probe: Probe) -> Iterator[GrpcCall]:
    yield call_method(probe, INFERENCE, "ModelMetadata", name=_UNKNOWN)
    yield call_method(probe, INFERENCE, "ModelInfer", model_name=_UNKNOWN)


def _unknown_output(probe: Probe) -> None:
    expect_outputs(probe)
    request = build_request(probe)
    request.outputs.add(name=_UNKNOWN)
    expect_refusal(infer(probe, request), *CLIENT_ERRORS, "NOT_FOUND")


def _wrong_datatype(probe: Probe) -> None:
    request = build_request(probe)
    for tensor in request.inputs:
        tensor.datatype = "CONFORM"
    expect_refusal(infer(probe, request), *CLIENT_ERRORS)


def _wrong_count(probe: Probe) -> None:
    request = build_request(probe)
    if any(tensor.datatype == "BYTES" or not tensor.shape for tensor in request.inputs):
        raise NotApplicableError("About numeric inputs with a shape")
    for tensor in request.inputs:
        tensor.shape[:] = [length + 1 for length in tensor.shape]
    expect_refusal(infer(probe, request), *CLIENT_ERRORS)


def _raw_and_contents(probe: Probe) -> None:
    expect_outputs(probe)
    request = build_request(probe)
    if request.raw_input_contents:
        raise NotApplicableError("About models that accept contents")
    request.raw_input_contents.extend(with_raw_contents(request).raw_input_contents)
    expect_refusal(infer(probe, request), *CLIENT_ERRORS)


def _raw_count(probe: Probe) -> None:
    expect_outputs(probe)
    request = with_raw_contents(build_request(probe))
    request.raw_input_contents.append(request.raw_input_contents[0])
    expect_refusal(infer(probe, request), *CLIENT_ERRORS)


def _version(probe: Probe) -> None:
    versions = list(metadata_of(probe).versions)
    if not versions:
        raise NotApplicableError("About models with versions")
    expect_outputs(probe)
    request = build_request(probe)
    request.model_version = versions[0]
    first_response(infer(probe, request))
    first_response(call_method(probe, INFERENCE, "ModelMetadata", name=model_name(probe), version=versions[0]))


_OIP = "Open Inference Protocol, gRPC"
_INPUT, _OUTPUT = f"{_OIP}, ModelInferRequest", f"{_OIP}, ModelInferResponse"
_STATUS = "Triton and KServe: INVALID_ARGUMENT"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_INFERS = ("V2G-007",)

CHECKS = (
    Check("V2G-001", _MUST, "ServerLive returns live.", f"{_OIP}, ServerLive",
          lambda probe: _expect_true("live", call_method(probe, INFERENCE, "ServerLive"))),
    Check("V2G-002", _MUST, "ServerReady returns ready.", f"{_OIP}, ServerReady",
          lambda probe: _expect_true("ready", call_method(probe, INFERENCE, "ServerReady"))),
    Check("V2G-003", _MUST, "ServerMetadata returns name and version.", f"{_OIP}, ServerMetadata", _server_metadata),
    Check("V2G-004", _MUST, "ModelReady returns ready.", f"{_OIP}, ModelReady",
          lambda probe: _expect_true("ready", call_method(probe, INFERENCE, "ModelReady", name=model_name(probe)))),
    Check("V2G-005", _MUST, "ModelMetadata returns name, inputs and outputs.", f"{_OIP}, ModelMetadata",
          _model_metadata),
    Check("V2G-006", _MUST, "Declared datatypes are those of the table, or BF16.",
          "Open Inference Protocol, Tensor Data Types", _datatypes, requires=("V2G-005",)),
    Check("V2G-007", _MUST, "ModelInfer returns outputs with name and datatype.", _OUTPUT, _infers,
          requires=("V2G-005",)),
    Check("V2G-008", _MUST, "Outputs have names that the metadata declares.", f"{_OIP}, ModelMetadata", _names,
          requires=_INFERS),
    Check("V2G-009", _MUST, "Outputs have the declared datatypes.", f"{_OIP}, ModelMetadata", _output_datatypes,
          requires=("V2G-006", "V2G-007")),
    Check("V2G-010", _MUST, "Outputs have shapes that fit the declared ones.", f"{_OIP}, ModelMetadata", _output_shapes,
          requires=_INFERS),
    Check("V2G-011", _MUST, "Elements are in the field of their datatype, or all outputs are raw.",
          f"{_OIP}, InferTensorContents, raw_output_contents", _contents_fields, requires=("V2G-007", "V2G-009")),
    Check("V2G-012", _MUST,
          "Outputs have the number of elements that shape implies; raw elements have the size of their datatype.",
          f"{_OIP}, raw_output_contents", _counts, requires=("V2G-011",)),
    Check("V2G-013", _MUST, "The response has the id of the request.", _OUTPUT, _id, requires=_INFERS),
    Check("V2G-014", _MUST, "model_name is the model's.", _OUTPUT, _model_name, requires=_INFERS),
    Check("V2G-015", _MUST, "raw_input_contents give the same answer as contents.", f"{_INPUT}, raw_input_contents",
          _raw_matches, requires=("V2G-012",)),
    Check("V2G-016", _MUST, "Only the requested outputs are returned.", f"{_INPUT}, outputs", _requested_outputs,
          requires=_INFERS),
    Check("V2G-017", _SHOULD, "Unknown parameters are ignored.",
          f"{_INPUT}, parameters; Triton, KServe and MLServer ignore them", _unknown_parameters, requires=_INFERS),
    Check("V2G-018", _MUST, "An unknown model is answered with NOT_FOUND.", "Triton, KServe and MLServer: NOT_FOUND",
          lambda probe: expect_refusals(_call_unknown_model(probe), "NOT_FOUND")),
    Check("V2G-019", _MUST, "A refusal has a text with its status.", f"{_OIP}: google.rpc.Status",
          lambda probe: expect_reasons(_call_unknown_model(probe))),
    Check("V2G-020", _SHOULD, "An unknown output is refused as a client error.", _STATUS, _unknown_output,
          requires=_INFERS),
    Check("V2G-021", _SHOULD, "A request without inputs is refused as a client error.", _STATUS,
          lambda probe: expect_refusal(call_method(probe, INFERENCE, "ModelInfer", model_name=model_name(probe)),
                                       *CLIENT_ERRORS)),
    Check("V2G-022", _SHOULD, "An unknown datatype is refused as a client error.", _STATUS, _wrong_datatype,
          requires=("V2G-005",)),
    Check("V2G-023", _SHOULD, "A shape that does not match the number of elements is refused as a client error.",
          f"{_INPUT}, contents; Triton: INVALID_ARGUMENT", _wrong_count, requires=("V2G-005",)),
    Check("V2G-024", _SHOULD, "Both contents and raw_input_contents are refused as a client error.",
          f"{_INPUT}, raw_input_contents; MLServer takes the contents", _raw_and_contents, requires=_INFERS),
    Check("V2G-025", _SHOULD, "More raw_input_contents than inputs are refused as a client error.",
          f"{_INPUT}, raw_input_contents", _raw_count, requires=_INFERS),
    Check("V2G-026", _SHOULD, "Each version in the metadata can be requested.", f"{_OIP}; KServe has none", _version,
          requires=_INFERS),
)  # fmt: skip
