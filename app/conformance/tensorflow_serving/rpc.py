"""Check TensorFlow Serving's gRPC services."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict

from app.conformance.check import MUST, SHOULD, Check, InconclusiveError, NotApplicableError, expect, quote
from app.conformance.client.calls import (
    GrpcCall,
    call_method,
    expect_reasons,
    expect_refusal,
    expect_refusals,
    first_response,
)
from app.conformance.client.model_names import model_name
from app.conformance.client.probe import Probe
from app.conformance.tensorflow_serving import messages as tfs
from app.conformance.tensors import UNKNOWN, expect_accepted
from app.proto import MODEL_SERVICE, PREDICTION_SERVICE

_METHOD = "tensorflow/serving/"


def _status(probe: Probe) -> None:
    for version in tfs.versions_of(probe):
        is_known = version.version > 0 and version.state and version.HasField("status")
        expect(is_known, "a version, a state and a status", MessageToDict(version))


def _status_of_version(probe: Probe) -> None:
    number = tfs.versions_of(probe)[0].version
    got = [version.version for version in tfs.versions_of(probe, version={"value": number})]
    expect(got == [number], f"version {number} alone", got)


def _metadata(probe: Probe) -> None:
    for name, signature in tfs.signatures_of(probe).items():
        is_described = signature.inputs and signature.outputs and signature.method_name
        expect(is_described, f"inputs, outputs and method_name of {name}", MessageToDict(signature))


def _outputs(probe: Probe) -> None:
    declared = tfs.default_signature(probe).outputs
    for name, tensor in tfs.answer_of(probe).outputs.items():
        expect(name in declared, f"one of {', '.join(declared)}", name)
        expect(tensor.dtype == declared[name].dtype, f"datatype {declared[name].dtype} of {name}", tensor.dtype)


def _elements(probe: Probe) -> None:
    for name, tensor in tfs.answer_of(probe).outputs.items():
        field, dtype = tfs.TYPES[tensor.dtype]
        place = "tensor_content" if tensor.tensor_content and dtype else field
        used = {part.name for part, _ in tensor.ListFields()} - {"dtype", "tensor_shape", "version_number"}
        expect(used <= {place}, f"the elements of {name} in {field} or tensor_content", sorted(used))
        size, got = tfs.size_of(tensor), len(getattr(tensor, place))
        if place == field:
            expect(got <= size and bool(got or not size), f"{size} elements of {name}, or fewer to be repeated", got)
        else:
            expect(got == size * np.dtype(dtype).itemsize, f"the bytes of {size} elements of {name}", got)


def _numbers(request: Any) -> list[tuple[Any, Any]]:
    """Return the numeric inputs of a request, each with the field of its elements.

    Raises:
        NotApplicableError: no field has elements.
    """
    tensors = [tensor for tensor in request.inputs.values() if tensor.dtype != tfs.STRING]
    numbers = [(tensor, getattr(tensor, tfs.TYPES[tensor.dtype][0])) for tensor in tensors]
    if not any(elements for _, elements in numbers):
        raise NotApplicableError("About numeric inputs, with elements in the field of their datatype")
    return [(tensor, elements) for tensor, elements in numbers if elements]


def _with_content(request: Any, tail: bytes = b"") -> Any:
    """Move the elements of numeric inputs to tensor_content, with `tail` behind them."""
    for tensor, elements in _numbers(request):
        field, dtype = tfs.TYPES[tensor.dtype]
        tensor.tensor_content = np.array(elements, dtype).tobytes() + tail
        tensor.ClearField(field)
    return request


def _expect_same_outputs(probe: Probe, request: Any, other: Any) -> None:
    exchanges = (tfs.call_predict(probe, request, fresh=fresh) for fresh in (False, True))
    first, again = (MessageToDict(expect_accepted(exchange)).get("outputs") for exchange in exchanges)
    if first != again:
        raise InconclusiveError("The model gives different answers to the same request")
    got = MessageToDict(first_response(tfs.call_predict(probe, other))).get("outputs")
    expect(got == first, quote(first), got)


def _one_value(probe: Probe) -> None:
    full, short = tfs.build_request(probe), tfs.build_request(probe)
    for tensor, elements in _numbers(full):
        elements[:] = [elements[0]] * tfs.size_of(tensor)
    for _, elements in _numbers(short):
        del elements[1:]
    _expect_same_outputs(probe, full, short)


def _expect_refused(probe: Probe, code: str, **fields: Any) -> None:
    """Raise a `ViolationError` unless `Predict` with other `fields` is refused with `code`."""
    expect_refusal(tfs.predict(probe, **fields), code)


def _wrong_datatype(probe: Probe) -> None:
    name, tensor = next(iter(tfs.build_request(probe).inputs.items()))
    dtype, element = (tfs.FLOAT, 1) if tensor.dtype == tfs.STRING else (tfs.STRING, b"conform")
    _expect_refused(probe, _INVALID, inputs={name: tfs.build_tensor(dtype, [1], [element])})


def _output_filter(probe: Probe) -> None:
    name = max(tfs.answer_of(probe).outputs)
    got = list(tfs.answer_of(probe, output_filter=[name]).outputs)
    expect(got == [name], f"only {name}", got)


def _version(probe: Probe) -> None:
    number = tfs.versions_of(probe)[0].version
    got = tfs.answer_of(probe, model_spec={"version": {"value": number}}).model_spec
    expect(got.name == model_name(probe) and got.version.value == number, f"version {number}", MessageToDict(got))


def _call_unknown_model(probe: Probe) -> Iterator[GrpcCall]:
    yield tfs.predict(probe, model_spec={"name": UNKNOWN})
    yield tfs.call_metadata(probe, tfs.SIGNATURE_DEF, name=UNKNOWN)
    yield tfs.call_status(probe, name=UNKNOWN)


def _call_unknown_version(probe: Probe) -> Iterator[GrpcCall]:
    version = {"version": {"value": 2**40}}
    yield tfs.predict(probe, model_spec=version)
    yield tfs.call_status(probe, **version)


def _call_without_name(probe: Probe) -> Iterator[GrpcCall]:
    yield call_method(probe, PREDICTION_SERVICE, "Predict")
    yield call_method(probe, PREDICTION_SERVICE, "GetModelMetadata", metadata_field=[tfs.SIGNATURE_DEF])
    yield call_method(probe, MODEL_SERVICE, "GetModelStatus")


def _examples(probe: Probe) -> list[dict[str, Any]]:
    """Return two equal examples, with features like the inputs of serving_default."""
    features: dict[str, Any] = {}
    for name, info in tfs.default_signature(probe).inputs.items():
        _, values = tfs.generate(name, info, first_dimension=1)
        is_float = tfs.TYPES[info.dtype][0] in ("float_val", "double_val", "half_val")
        kind = "bytes_list" if info.dtype == tfs.STRING else "float_list" if is_float else "int64_list"
        features[name] = {kind: {"value": values}}
    return [{"features": {"feature": features}}] * 2


def _specs(probe: Probe, *methods: str) -> Mapping[str, dict[str, Any]]:
    """Return a ModelSpec for each of `methods` that has a signature.

    Raises:
        NotApplicableError: none has.
    """
    specs = {
        method: {"name": model_name(probe), "signature_name": name}
        for name, signature in tfs.signatures_of(probe).items()
        for method in methods
        if signature.method_name == f"{_METHOD}{method.lower()}"
    }
    if not specs:
        raise NotApplicableError(f"About models with a signature for {' or '.join(methods)}")
    return specs


def _infer(probe: Probe, method: str, spec: Mapping[str, Any], **kinds: Any) -> Any:
    """Call Classify or Regress, with two examples or the given kind of `Input`."""
    kinds = kinds or {"example_list": {"examples": _examples(probe)}}
    return expect_accepted(call_method(probe, PREDICTION_SERVICE, method, model_spec=spec, input=kinds)).result


def _classify(probe: Probe) -> None:
    result = _infer(probe, "Classify", _specs(probe, "Classify")["Classify"])
    counts = [len(row.classes) for row in result.classifications]
    expect(len(counts) == 2 and all(counts), "classes for each of two examples", MessageToDict(result))


def _regress(probe: Probe) -> None:
    result = _infer(probe, "Regress", _specs(probe, "Regress")["Regress"])
    expect(len(result.regressions) == 2, "a value for each of two examples", MessageToDict(result))


def _multi_inference(probe: Probe) -> None:
    specs = _specs(probe, "Classify", "Regress")
    tasks = [{"model_spec": spec, "method_name": f"{_METHOD}{method.lower()}"} for method, spec in specs.items()]
    examples = {"example_list": {"examples": _examples(probe)}}
    answer = expect_accepted(call_method(probe, PREDICTION_SERVICE, "MultiInference", tasks=tasks, input=examples))
    got = [getattr(result, result.WhichOneof("result") or "model_spec") for result in answer.results]
    expect(got == [_infer(probe, *item) for item in specs.items()], "the result of each task", list(map(str, got)))


def _context(probe: Probe) -> None:
    for method, spec in _specs(probe, "Classify", "Regress").items():
        context: dict[str, Any] = {"examples": [{}, {}], "context": _examples(probe)[0]}
        expected, got = _infer(probe, method, spec), _infer(probe, method, spec, example_list_with_context=context)
        expect(got == expected, str(expected), str(got))


def _empty_input(probe: Probe) -> None:
    for method, spec in _specs(probe, "Classify", "Regress").items():
        expect_refusal(call_method(probe, PREDICTION_SERVICE, method, model_spec=spec), "INVALID_ARGUMENT")


_SERVER = "TensorFlow Serving"
_CORE, _PREDICT_CODE, _APIS = f"{_SERVER}, its server core", f"{_SERVER}, predict_util.cc", f"{_SERVER}, apis"
_STATUS, _PREDICT = f"{_APIS}/get_model_status.proto", f"{_APIS}/predict.proto"
_TENSOR = "TensorFlow, tensor.proto"
_DESCRIBES, _PREDICTS = ("TFSG-005",), ("TFSG-007",)
_INVALID, _NOT_FOUND = "INVALID_ARGUMENT", "NOT_FOUND"

CHECKS = (
    Check("TFSG-001", MUST, "A request without the name of a model is INVALID_ARGUMENT.", _CORE,
          lambda probe: expect_refusals(_call_without_name(probe), _INVALID)),
    Check("TFSG-002", MUST, "GetModelStatus returns version, state and status of each version.", _STATUS, _status),
    Check("TFSG-003", MUST, "With a version in the request, only that version is returned.",
          _STATUS, _status_of_version, requires=("TFSG-002",)),
    Check("TFSG-004", SHOULD, "HandleReloadConfigRequest without a configuration is refused.",
          f"{_SERVER}, model_service_impl.cc",
          lambda probe: expect_refusal(call_method(probe, MODEL_SERVICE, "HandleReloadConfigRequest"),
                                       _INVALID, "UNIMPLEMENTED", "PERMISSION_DENIED")),
    Check("TFSG-005", MUST, "GetModelMetadata returns a SignatureDefMap, with inputs, outputs and methods.",
          f"{_APIS}/get_model_metadata.proto", _metadata),
    Check("TFSG-006", MUST, "Metadata without metadata_field, or of another field, is INVALID_ARGUMENT.",
          f"{_SERVER}, get_model_metadata_impl.cc",
          lambda probe: expect_refusals([tfs.call_metadata(probe), tfs.call_metadata(probe, UNKNOWN)], _INVALID)),
    Check("TFSG-007", MUST, "Predict returns outputs with the names and datatypes of the signature.",
          _PREDICT, _outputs, requires=_DESCRIBES),
    Check("TFSG-008", MUST, "Elements are in the field of their datatype or in tensor_content, and fit the shape.",
          _TENSOR, _elements, requires=_PREDICTS),
    Check("TFSG-009", MUST, "tensor_content gives the same answer as the field of the datatype.", _TENSOR,
          lambda probe: _expect_same_outputs(probe, tfs.build_request(probe), _with_content(tfs.build_request(probe))),
          requires=_PREDICTS),
    Check("TFSG-010", MUST, "One value stands for all elements.", _TENSOR, _one_value, requires=_PREDICTS),
    Check("TFSG-011", MUST, "output_filter selects outputs.", _PREDICT, _output_filter, requires=_PREDICTS),
    Check("TFSG-012", MUST, "A version can be requested, and model_spec of the answer names it.",
          f"{_APIS}/model.proto", _version, requires=("TFSG-002", *_PREDICTS)),
    Check("TFSG-013", MUST, "An unknown model is answered with NOT_FOUND.", f"{_SERVER}, its tests",
          lambda probe: expect_refusals(_call_unknown_model(probe), _NOT_FOUND), requires=_DESCRIBES),
    Check("TFSG-014", MUST, "An unknown version is answered with NOT_FOUND.", f"{_SERVER}, its tests",
          lambda probe: expect_refusals(_call_unknown_version(probe), _NOT_FOUND), requires=_PREDICTS),
    Check("TFSG-015", SHOULD, "An unknown label is answered with INVALID_ARGUMENT.", _CORE,
          lambda probe: _expect_refused(probe, _INVALID, model_spec={"version_label": UNKNOWN}), requires=_PREDICTS),
    Check("TFSG-016", MUST, "An unknown signature is answered with FAILED_PRECONDITION.", _PREDICT_CODE,
          lambda probe: _expect_refused(probe, "FAILED_PRECONDITION", model_spec={"signature_name": UNKNOWN}),
          requires=_PREDICTS),
    Check("TFSG-017", MUST, "An unknown input is INVALID_ARGUMENT.", _PREDICT_CODE,
          lambda probe: _expect_refused(probe, _INVALID, inputs={UNKNOWN: tfs.build_tensor(tfs.FLOAT, [1], [1])}),
          requires=_PREDICTS),
    Check("TFSG-018", MUST, "An unknown output in output_filter is INVALID_ARGUMENT.", _PREDICT_CODE,
          lambda probe: _expect_refused(probe, _INVALID, output_filter=[UNKNOWN]), requires=_PREDICTS),
    Check("TFSG-019", MUST, "An input of another datatype is INVALID_ARGUMENT.", _PREDICT_CODE,
          _wrong_datatype, requires=_PREDICTS),
    Check("TFSG-020", MUST, "tensor_content of another size than shape has is INVALID_ARGUMENT.", _TENSOR,
          lambda probe: expect_refusal(
              tfs.call_predict(probe, _with_content(tfs.build_request(probe), b"\0")), _INVALID),
          requires=("TFSG-009",)),
    Check("TFSG-021", MUST, "A refusal has a text with its status.", f"{_SERVER}, grpc_status_util.cc",
          lambda probe: expect_reasons([*_call_unknown_model(probe), *_call_without_name(probe)]), requires=_DESCRIBES),
    Check("TFSG-022", MUST, "Classify returns classes for each example.", f"{_APIS}/classification.proto", _classify,
          requires=_DESCRIBES),
    Check("TFSG-023", MUST, "Regress returns a value for each example.", f"{_APIS}/regression.proto", _regress,
          requires=_DESCRIBES),
    Check("TFSG-024", MUST, "Features of the context apply to each example.", f"{_APIS}/input.proto", _context,
          requires=("TFSG-022", "TFSG-023")),
    Check("TFSG-025", MUST, "Classify and Regress without examples are INVALID_ARGUMENT.", f"{_SERVER}, util.cc",
          _empty_input, requires=_DESCRIBES),
    Check("TFSG-026", MUST, "MultiInference returns the results of its tasks, in their order.",
          f"{_APIS}/inference.proto", _multi_inference, requires=("TFSG-022", "TFSG-023")),
)  # fmt: skip
