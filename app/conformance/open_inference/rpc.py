"""Check the Open Inference Protocol, V2, over gRPC. The checks without an underscore are the same over REST."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from app.conformance.check import MUST, SHOULD, Check, NotApplicableError, expect, expect_same
from app.conformance.client.calls import GrpcCall, call_method, expect_reasons
from app.conformance.client.exchange import InconclusiveError, quote
from app.conformance.client.probe import Probe
from app.conformance.open_inference import messages as oip
from app.conformance.tensors import UNKNOWN, expect_statuses
from app.proto import INFERENCE


def datatypes(probe: Probe) -> None:
    """Check that the metadata declares datatypes of the table."""
    metadata = oip.metadata_of(probe)
    for spec in (*metadata.inputs, *metadata.outputs):
        expect(spec.datatype in oip.DATATYPES, "a datatype of the table", spec.datatype, spec.name)


def names(probe: Probe) -> None:
    """Check that the metadata declares the names of the outputs."""
    declared = [spec.name for spec in oip.metadata_of(probe).outputs]
    for output in oip.answer_of(probe).outputs:
        expect(output.name in declared, f"one of {quote(declared)}", output.name)


def _specs(probe: Probe) -> Sequence[tuple[Any, Any]]:
    """Return each output with its spec from the metadata."""
    declared = {spec.name: spec for spec in oip.metadata_of(probe).outputs}
    return [(output, declared[output.name]) for output in oip.answer_of(probe).outputs if output.name in declared]


def output_datatypes(probe: Probe) -> None:
    """Check that outputs have the declared datatypes."""
    for output, spec in _specs(probe):
        expect_same(output.datatype, spec.datatype, spec.datatype, spec.name)


def output_shapes(probe: Probe) -> None:
    """Check that outputs have shapes that fit the declared ones."""
    for output, spec in _specs(probe):
        got, expected = list(output.shape), list(spec.shape)
        fits = len(got) == len(expected) and all(e in (-1, g) for g, e in zip(got, expected, strict=True))
        expect(fits, quote(expected), got, spec.name)


def counts(probe: Probe) -> None:
    """Check that outputs have the number of elements that their shapes imply."""
    answer = oip.answer_of(probe)
    for index, output in enumerate(answer.outputs):
        expected = math.prod(output.shape)
        expect_same(len(oip.elements_of(answer, index)), expected, f"{expected} elements by its shape", output.name)


def same_id(probe: Probe) -> None:
    """Check that the response has the id of the request."""
    expect_same(oip.answer_of(probe, id="conform-1").id, "conform-1", "the id conform-1")


def same_model(probe: Probe) -> None:
    """Check that the response names the model."""
    expect_same(oip.answer_of(probe).model_name, oip.checked_model(probe), "the model's name")


def requested_outputs(probe: Probe) -> None:
    """Check that only the requested outputs are returned."""
    name = oip.answer_of(probe).outputs[-1].name
    got = [output.name for output in oip.answer_of(probe, outputs=[{"name": name}]).outputs]
    expect_same(got, [name], f"only {quote(name)}")


def unknown_parameters(probe: Probe) -> None:
    """Check that unknown parameters are ignored."""
    oip.answer_of(probe)
    parameters = {UNKNOWN: {"int64_param": 1} if probe.transport else 1}
    oip.infer(probe, oip.build_request(probe, parameters=parameters)).expect_object()


def unknown_output(probe: Probe) -> None:
    """Check that an unknown output is refused."""
    oip.answer_of(probe)
    oip.infer(probe, oip.build_request(probe, outputs=[{"name": UNKNOWN}])).expect_client_error("NOT_FOUND")


def wrong_datatype(probe: Probe) -> None:
    """Check that an unknown datatype is refused."""
    request = oip.build_request(probe)
    inputs = [{**tensor, "datatype": "CONFORM"} for tensor in request["inputs"]]
    oip.infer(probe, {**request, "inputs": inputs}).expect_client_error()


def wrong_count(probe: Probe) -> None:
    """Check that a shape that does not match the number of elements is refused."""
    request = oip.build_request(probe)
    if any(tensor["datatype"] == "BYTES" or not tensor.get("shape") for tensor in request["inputs"]):
        raise NotApplicableError("About numeric inputs with a shape; Chariot's clients send other shapes with images")
    inputs = [{**tensor, "shape": [length + 1 for length in tensor["shape"]]} for tensor in request["inputs"]]
    oip.infer(probe, {**request, "inputs": inputs}).expect_client_error()


def _expect_true(probe: Probe, method: str, field: str, **fields: str) -> None:
    is_true = getattr(call_method(probe, INFERENCE, method, **fields).message(), field)
    expect(is_true, f"{field} to be true", is_true)


def _server_metadata(probe: Probe) -> None:
    metadata = call_method(probe, INFERENCE, "ServerMetadata").message()
    expect(metadata.name and metadata.version, "name and version", [metadata.name, metadata.version])


def _model_metadata(probe: Probe) -> None:
    metadata = oip.metadata_of(probe)
    expect_same(metadata.name, oip.checked_model(probe), "the model's name")
    for field in ("inputs", "outputs"):
        specs = [[spec.name, spec.datatype, list(spec.shape)] for spec in getattr(metadata, field)]
        is_described = specs and all(name and datatype for name, datatype, _ in specs)
        expect(is_described, f"{field} of name, datatype and shape", specs)


def _contents_fields(probe: Probe) -> None:
    answer = oip.answer_of(probe)
    outputs, raw = len(answer.outputs), len(answer.raw_output_contents)
    expect(raw in (0, outputs), f"no raw_output_contents, or {outputs}, one for each output", raw)
    for index, output in enumerate(answer.outputs):
        field = oip.contents_field(answer, index)
        expected = oip.DATATYPES.get(output.datatype, ("",))[0] or "raw"
        expect(field in ("", "raw", expected), f"elements of {output.datatype} in {expected}", field, output.name)


def _values(answer: Any) -> Sequence[object]:
    return [(output.name, list(oip.elements_of(answer, index))) for index, output in enumerate(answer.outputs)]


def _request_with_contents(probe: Probe) -> dict[str, Any]:
    """Return a request that the model can answer.

    Raises:
        NotApplicableError: its elements are raw.
    """
    request = oip.build_request(probe)
    if request.get("raw_input_contents"):
        raise NotApplicableError("About models that accept contents")
    return request


def _raw_matches(probe: Probe) -> None:
    request = _request_with_contents(probe)
    first = _values(oip.answer_of(probe))
    if first != _values(oip.read_answer(oip.infer(probe, request, fresh=True))):
        raise InconclusiveError("The model gives different answers to the same request")
    expect_same(_values(oip.read_answer(oip.infer(probe, oip.with_raw_contents(request)))), first)


def _call_unknown_model(probe: Probe) -> Iterator[GrpcCall]:
    yield call_method(probe, INFERENCE, "ModelMetadata", name=UNKNOWN)
    yield call_method(probe, INFERENCE, "ModelInfer", model_name=UNKNOWN)


def _raw_and_contents(probe: Probe) -> None:
    oip.answer_of(probe)
    request = _request_with_contents(probe)
    raw = oip.with_raw_contents(request)["raw_input_contents"]
    oip.infer(probe, {**request, "raw_input_contents": raw}).expect_client_error()


def _raw_count(probe: Probe) -> None:
    oip.answer_of(probe)
    request = oip.with_raw_contents(oip.build_request(probe))
    raw = request["raw_input_contents"]
    oip.infer(probe, {**request, "raw_input_contents": [*raw, raw[0]]}).expect_client_error()


def _version(probe: Probe) -> None:
    versions = list(oip.metadata_of(probe).versions)
    if not versions:
        raise NotApplicableError("About models with versions")
    oip.answer_of(probe)
    oip.infer(probe, oip.build_request(probe, model_version=versions[0])).expect_object()
    call_method(probe, INFERENCE, "ModelMetadata", name=oip.checked_model(probe), version=versions[0]).message()


_OIP = "Open Inference Protocol, gRPC"
_INPUT, _OUTPUT = f"{_OIP}, ModelInferRequest", f"{_OIP}, ModelInferResponse"
_STATUS = "Triton and KServe: INVALID_ARGUMENT"
_INFERS = ("V2G-007",)

CHECKS = (
    Check("V2G-001", MUST, "ServerLive returns live.", f"{_OIP}, ServerLive",
          lambda probe: _expect_true(probe, "ServerLive", "live")),
    Check("V2G-002", MUST, "ServerReady returns ready.", f"{_OIP}, ServerReady",
          lambda probe: _expect_true(probe, "ServerReady", "ready")),
    Check("V2G-003", MUST, "ServerMetadata returns name and version.", f"{_OIP}, ServerMetadata", _server_metadata),
    Check("V2G-004", MUST, "ModelReady returns ready.", f"{_OIP}, ModelReady",
          lambda probe: _expect_true(probe, "ModelReady", "ready", name=oip.checked_model(probe))),
    Check("V2G-005", MUST, "ModelMetadata returns name, inputs and outputs.", f"{_OIP}, ModelMetadata",
          _model_metadata),
    Check("V2G-006", MUST, "Declared datatypes are those of the table, or BF16.",
          "Open Inference Protocol, Tensor Data Types", datatypes, requires=("V2G-005",)),
    Check("V2G-007", MUST, "ModelInfer returns outputs with name and datatype.", _OUTPUT, oip.answer_of,
          requires=("V2G-005",)),
    Check("V2G-008", MUST, "Outputs have names that the metadata declares.", f"{_OIP}, ModelMetadata", names,
          requires=_INFERS),
    Check("V2G-009", MUST, "Outputs have the declared datatypes.", f"{_OIP}, ModelMetadata", output_datatypes,
          requires=("V2G-006", "V2G-007")),
    Check("V2G-010", MUST, "Outputs have shapes that fit the declared ones.", f"{_OIP}, ModelMetadata", output_shapes,
          requires=_INFERS),
    Check("V2G-011", MUST, "Elements are in the field of their datatype, or all outputs are raw.",
          f"{_OIP}, InferTensorContents, raw_output_contents", _contents_fields, requires=("V2G-009",)),
    Check("V2G-012", MUST,
          "Outputs have the number of elements that shape implies; raw elements have the size of their datatype.",
          f"{_OIP}, raw_output_contents", counts, requires=("V2G-011",)),
    Check("V2G-013", MUST, "The response has the id of the request.", _OUTPUT, same_id, requires=_INFERS),
    Check("V2G-014", MUST, "model_name is the model's.", _OUTPUT, same_model, requires=_INFERS),
    Check("V2G-015", MUST, "raw_input_contents give the same answer as contents.", f"{_INPUT}, raw_input_contents",
          _raw_matches, requires=("V2G-012",)),
    Check("V2G-016", MUST, "Only the requested outputs are returned.", f"{_INPUT}, outputs", requested_outputs,
          requires=_INFERS),
    Check("V2G-017", SHOULD, "Unknown parameters are ignored.",
          f"{_INPUT}, parameters; Triton, KServe and MLServer ignore them",unknown_parameters, requires=_INFERS),
    Check("V2G-018", MUST, "An unknown model is answered with NOT_FOUND.", "Triton, KServe and MLServer: NOT_FOUND",
          lambda probe: expect_statuses(_call_unknown_model(probe), "NOT_FOUND")),
    Check("V2G-019", MUST, "A refusal has a text with its status.", f"{_OIP}: google.rpc.Status",
          lambda probe: expect_reasons(_call_unknown_model(probe))),
    Check("V2G-020", SHOULD, "An unknown output is refused as a client error.", _STATUS, unknown_output,
          requires=_INFERS),
    Check("V2G-021", SHOULD, "A request without inputs is refused as a client error.", _STATUS,
          lambda probe: oip.infer(probe, {"model_name": oip.checked_model(probe)}).expect_client_error()),
    Check("V2G-022", SHOULD, "An unknown datatype is refused as a client error.", _STATUS, wrong_datatype,
          requires=("V2G-005",)),
    Check("V2G-023", SHOULD, "A shape that does not match the number of elements is refused as a client error.",
          f"{_INPUT}, contents; Triton: INVALID_ARGUMENT", wrong_count, requires=("V2G-005",)),
    Check("V2G-024", SHOULD, "Both contents and raw_input_contents are refused as a client error.",
          f"{_INPUT}, raw_input_contents; MLServer takes the contents", _raw_and_contents, requires=_INFERS),
    Check("V2G-025", SHOULD, "More raw_input_contents than inputs are refused as a client error.",
          f"{_INPUT}, raw_input_contents", _raw_count, requires=_INFERS),
    Check("V2G-026", SHOULD, "Each version in the metadata can be requested.", f"{_OIP}; KServe has none", _version,
          requires=_INFERS),
)  # fmt: skip
