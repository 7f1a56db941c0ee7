"""Check the Open Inference Protocol, V2, over gRPC. REST shares some of its checks."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from app.core.proto import INFERENCE
from app.plugins.conformance.calls import call_method, expect_reasons
from app.plugins.conformance.check import MUST, SHOULD, Check, NotApplicableError, expect, expect_same, renamed
from app.plugins.conformance.exchange import Exchange, InconclusiveError, quote
from app.plugins.conformance.open_inference import messages as oip
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.tensors import UNKNOWN, expect_statuses


def _datatypes(probe: Probe) -> None:
    metadata = oip.metadata_of(probe)
    for spec in (*metadata.inputs, *metadata.outputs):
        expect(spec.datatype in oip.DATATYPES, "a datatype of the table", spec.datatype, spec.name)


def _names(probe: Probe) -> None:
    declared = [spec.name for spec in oip.metadata_of(probe).outputs]
    for output in oip.answer_of(probe).outputs:
        expect(output.name in declared, f"one of {quote(declared)}", output.name)


def _specs(probe: Probe) -> Sequence[tuple[Any, Any]]:
    """Return each output with its spec from the metadata."""
    declared = {spec.name: spec for spec in oip.metadata_of(probe).outputs}
    return [(output, declared[output.name]) for output in oip.answer_of(probe).outputs if output.name in declared]


def _output_datatypes(probe: Probe) -> None:
    for output, spec in _specs(probe):
        expect_same(output.datatype, spec.datatype, spec.datatype, spec.name)


def _output_shapes(probe: Probe) -> None:
    for output, spec in _specs(probe):
        got, expected = list(output.shape), list(spec.shape)
        # A column of one element for each row, as MLServer returns, has the same elements.
        rows, ones = got[: len(expected)], got[len(expected) :]
        fits = len(rows) == len(expected) and all(e in (-1, g) for g, e in zip(rows, expected, strict=True))
        expect(fits and set(ones) <= {1}, quote(expected), got, spec.name)


def _values(answer: Any) -> Sequence[object]:
    return [(output.name, list(oip.elements_of(answer, index))) for index, output in enumerate(answer.outputs)]


def _two_elements(probe: Probe) -> None:
    """Send two different elements alone and together: an answer that equals one of those alone lacks the other."""
    if not all(list(spec.shape)[:1] == [-1] for spec in oip.metadata_of(probe).inputs):
        raise NotApplicableError("About models whose inputs have -1 as the first dimension")
    oip.answer_of(probe)
    first, second = (_values(oip.answer_of(probe, rows=[row])) for row in (0, 1))
    if first == second:
        raise InconclusiveError("The model gives the same answer to both elements")
    exchange = oip.infer(probe, oip.build_request(probe, rows=[0, 1]))
    if exchange.rejected:
        return
    exchange.expect_object()
    together = _values(oip.read_answer(exchange))
    for alone, lost in ((first, "second"), (second, "first")):
        expect(together != alone, f"an answer to both elements, or a rejection; the {lost} is missing", together)


def counts(probe: Probe) -> None:
    """Check that outputs have the number of elements that their shapes imply."""
    answer = oip.answer_of(probe)
    for index, output in enumerate(answer.outputs):
        expected = math.prod(output.shape)
        expect_same(len(oip.elements_of(answer, index)), expected, f"{expected} elements by its shape", output.name)


def _requested_outputs(probe: Probe) -> None:
    name = oip.answer_of(probe).outputs[-1].name
    got = [output.name for output in oip.answer_of(probe, outputs=[{"name": name}]).outputs]
    expect_same(got, [name], f"only {quote(name)}")


def _unknown_parameters(probe: Probe) -> None:
    oip.answer_of(probe)
    parameters = {UNKNOWN: {"int64_param": 1} if probe.transport else 1}
    oip.infer(probe, oip.build_request(probe, parameters=parameters)).expect_object()


def _unknown_output(probe: Probe) -> None:
    oip.answer_of(probe)
    oip.infer(probe, oip.build_request(probe, outputs=[{"name": UNKNOWN}])).expect_client_error("NOT_FOUND")


def _wrong_datatype(probe: Probe) -> None:
    request = oip.build_request(probe)
    inputs = [{**tensor, "datatype": "CONFORM"} for tensor in request["inputs"]]
    oip.infer(probe, {**request, "inputs": inputs}).expect_client_error()


def _wrong_count(probe: Probe) -> None:
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


def _request_with_contents(probe: Probe) -> dict[str, Any]:
    """Return a request that the model can answer, unless its elements are raw, which is not applicable."""
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


def _call_unknown_model(probe: Probe) -> Iterator[Exchange]:
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


_PAGE = "Open Inference Protocol"
_OIP = f"{_PAGE}, gRPC"
_REJECTED = "Triton and KServe: 400, INVALID_ARGUMENT"
_INPUT, _OUTPUT = f"{_OIP}, ModelInferRequest", f"{_OIP}, ModelInferResponse"
_STATUS = "Triton and KServe: INVALID_ARGUMENT"
_INFERS = ("V2G-008",)

SHARED = (
    Check("S01", MUST, "Declared datatypes are those of the table, or BF16.", f"{_PAGE}, Tensor Data Types",
          _datatypes, requires=("006",)),
    Check("S02", MUST, "Outputs have names that the metadata declares.", f"{_PAGE}, Model Metadata", _names,
          requires=("008",)),
    Check("S03", MUST, "Outputs have the declared datatypes.", f"{_PAGE}, Model Metadata", _output_datatypes,
          requires=("S01", "008")),
    Check("S04", MUST, "Outputs have shapes that fit the declared ones.", f"{_PAGE}, Model Metadata", _output_shapes,
          requires=("008",)),
    Check("S05", MUST, "The response has the id of the request.", f"{_PAGE}, Inference",
          lambda probe: expect_same(oip.answer_of(probe, id="conform-1").id, "conform-1", "the id conform-1"),
          requires=("008",)),
    Check("S06", MUST, "model_name is the model's.", f"{_PAGE}, Inference",
          lambda probe: expect_same(oip.answer_of(probe).model_name, oip.checked_model(probe), "the model's name"),
          requires=("008",)),
    Check("S07", MUST, "Only the requested outputs are returned.", f"{_PAGE}, Inference", _requested_outputs,
          requires=("008",)),
    Check("S08", SHOULD, "Unknown parameters are ignored.",
          f"{_PAGE}, Parameters: a server may have its own; Triton, KServe and MLServer ignore others",
          _unknown_parameters, requires=("008",)),
    Check("S09", SHOULD, "An unknown output is rejected as a client error.", _REJECTED, _unknown_output,
          requires=("008",)),
    Check("S10", SHOULD, "An unknown datatype is rejected as a client error.", _REJECTED, _wrong_datatype,
          requires=("006",)),
    Check("S11", SHOULD, "A shape that does not match the number of elements is rejected as a client error.",
          f"{_PAGE}, Tensor Data; Triton: INVALID_ARGUMENT, but 500 over REST", _wrong_count, requires=("006",)),
)  # fmt: skip
"""The checks of both transports. They require "006", which reads the metadata, and "008", which sends an inference."""


def two_elements_check(check_id: str, required: str) -> Check:
    """Return a check with its id, and the id of the check that outputs have as many elements as their shapes imply."""
    sentence = "An input with two elements is answered for both, or rejected as a client error."
    return Check(check_id, MUST, sentence, f"{_PAGE}, Tensor Data: shape", _two_elements, requires=(required,))


CHECKS = (
    Check("V2G-001", MUST, "ServerLive returns live.", f"{_OIP}, ServerLive",
          lambda probe: _expect_true(probe, "ServerLive", "live")),
    Check("V2G-002", MUST, "ServerReady returns ready.", f"{_OIP}, ServerReady",
          lambda probe: _expect_true(probe, "ServerReady", "ready")),
    Check("V2G-003", MUST, "ServerMetadata returns name and version.", f"{_OIP}, ServerMetadata", _server_metadata),
    Check("V2G-004", MUST, "ModelReady returns ready.", f"{_OIP}, ModelReady",
          lambda probe: _expect_true(probe, "ModelReady", "ready", name=oip.checked_model(probe))),
    Check("V2G-006", MUST, "ModelMetadata returns name, inputs and outputs.", f"{_OIP}, ModelMetadata",
          _model_metadata),
    Check("V2G-008", MUST, "ModelInfer returns outputs with name and datatype.", _OUTPUT, oip.answer_of,
          requires=("V2G-006",)),
    *(renamed(check, "V2G") for check in SHARED),
    Check("V2G-011", MUST, "Elements are in the field of their datatype, or all outputs are raw.",
          f"{_OIP}, InferTensorContents, raw_output_contents", _contents_fields, requires=("V2G-S03",)),
    Check("V2G-012", MUST,
          "Outputs have the number of elements that shape implies; raw elements have the size of their datatype.",
          f"{_OIP}, raw_output_contents", counts, requires=("V2G-011",)),
    two_elements_check("V2G-013", "V2G-012"),
    Check("V2G-015", MUST, "raw_input_contents give the same answer as contents.", f"{_INPUT}, raw_input_contents",
          _raw_matches, requires=("V2G-012",)),
    Check("V2G-018", MUST, "An unknown model is answered with NOT_FOUND.", "Triton, KServe and MLServer: NOT_FOUND",
          lambda probe: expect_statuses(_call_unknown_model(probe), "NOT_FOUND")),
    Check("V2G-019", MUST, "A rejection has a text with its status.", f"{_OIP}: google.rpc.Status",
          lambda probe: expect_reasons(_call_unknown_model(probe))),
    Check("V2G-021", SHOULD, "A request without inputs is rejected as a client error.", _STATUS,
          lambda probe: oip.infer(probe, {"model_name": oip.checked_model(probe)}).expect_client_error()),
    Check("V2G-024", SHOULD, "Both contents and raw_input_contents are rejected as a client error.",
          f"{_INPUT}, raw_input_contents; MLServer takes the contents", _raw_and_contents, requires=_INFERS),
    Check("V2G-025", SHOULD, "More raw_input_contents than inputs are rejected as a client error.",
          f"{_INPUT}, raw_input_contents", _raw_count, requires=_INFERS),
    Check("V2G-026", SHOULD, "Each version in the metadata can be requested.", f"{_OIP}; KServe has none", _version,
          requires=_INFERS),
)  # fmt: skip
