"""Check TensorFlow Serving's gRPC services."""

import base64
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from app.plugins.conformance.check import MUST, SHOULD, Check, NotApplicableError, Protocol, expect
from app.plugins.conformance.client.calls import GrpcCall, call_method, expect_reasons
from app.plugins.conformance.client.exchange import InconclusiveError, quote
from app.plugins.conformance.client.model_names import model_name
from app.plugins.conformance.client.probe import Probe
from app.plugins.conformance.tensors import UNKNOWN, expect_statuses
from app.plugins.tensorflow_serving.conformance import messages as tfs
from app.plugins.tensorflow_serving.conformance import rest
from app.plugins.tensorflow_serving.proto import MODEL_SERVICE, PREDICTION_SERVICE

_METHOD = "tensorflow/serving/"


def _status(probe: Probe) -> None:
    for version in tfs.versions_of(probe):
        is_known = int(version.get("version", 0)) > 0 and {"state", "status"} <= version.keys()
        expect(is_known, "a version, a state and a status", version)


def _metadata(probe: Probe) -> None:
    for name, signature in tfs.signatures_of(probe).items():
        is_described = {"inputs", "outputs", "method_name"} <= signature.keys()
        expect(is_described, f"inputs, outputs and method_name of {name}", signature)


def _outputs(probe: Probe) -> None:
    declared = tfs.default_signature(probe)["outputs"]
    for name, tensor in tfs.answer_of(probe)["outputs"].items():
        expect(name in declared, f"one of {', '.join(declared)}", name)
        expected, got = declared[name].get("dtype"), tensor.get("dtype")
        expect(got == expected, f"datatype {expected} of {name}", got)


def _elements(probe: Probe) -> None:
    for name, tensor in tfs.answer_of(probe)["outputs"].items():
        field, dtype = tfs.TYPES[tensor["dtype"]]
        place = "tensor_content" if "tensor_content" in tensor and dtype else field
        used = tensor.keys() - {"dtype", "tensor_shape", "version_number"}
        expect(used <= {place}, f"the elements of {name} in {field} or tensor_content", sorted(used))
        size = math.prod(tfs.sizes_of(tensor))
        if place == field:
            got = len(tensor.get(field, []))
            expect(got <= size and bool(got or not size), f"{size} elements of {name}, or fewer to be repeated", got)
        else:
            got = len(base64.b64decode(tensor[place]))
            expect(got == size * np.dtype(dtype).itemsize, f"the bytes of {size} elements of {name}", got)


def _numbers(request: Any) -> list[tuple[Any, str, str]]:
    """Return the numeric inputs of a request, each with the field of its elements and its numpy dtype; at least one."""
    tensors = [(tensor, *tfs.fields_of(tensor)) for tensor in request.inputs.values()]
    numbers = [(tensor, field, dtype) for tensor, field, dtype in tensors if dtype and getattr(tensor, field)]
    if not numbers:
        raise NotApplicableError("About numeric inputs, with elements in the field of their datatype")
    return numbers


def _with_content(request: Any, tail: bytes = b"") -> Any:
    """Move the elements of numeric inputs to tensor_content, with `tail` behind them."""
    for tensor, field, dtype in _numbers(request):
        tensor.tensor_content = np.array(getattr(tensor, field), dtype).tobytes() + tail
        tensor.ClearField(field)
    return request


def _expect_same_outputs(probe: Probe, request: Any, other: Any) -> None:
    exchanges = (tfs.call_predict(probe, request, fresh=fresh) for fresh in (False, True))
    first, again = (exchange.expect_accepted().get("outputs") for exchange in exchanges)
    if first != again:
        raise InconclusiveError("The model gives different answers to the same request")
    got = tfs.call_predict(probe, other).expect_object().get("outputs")
    expect(got == first, quote(first), got)


def _one_value(probe: Probe) -> None:
    full, short = tfs.build_request(probe), tfs.build_request(probe)
    for tensor, field, _ in _numbers(full):
        elements = getattr(tensor, field)
        elements[:] = [elements[0]] * math.prod(dimension.size for dimension in tensor.tensor_shape.dim)
    for tensor, field, _ in _numbers(short):
        del getattr(tensor, field)[1:]
    _expect_same_outputs(probe, full, short)


def _wrong_datatype(probe: Probe) -> None:
    name, tensor = next(iter(tfs.build_request(probe).inputs.items()))
    is_number = tfs.fields_of(tensor)[1]
    dtype, element = (tfs.STRING, b"conform") if is_number else (tfs.FLOAT, 1)
    tfs.predict(probe, inputs={name: tfs.build_tensor(dtype, [1], [element])}).expect_status(_INVALID)


def _output_filter(probe: Probe) -> None:
    name = max(tfs.answer_of(probe)["outputs"])
    got = list(tfs.answer_of(probe, output_filter=[name])["outputs"])
    expect(got == [name], f"only {name}", got)


def _version(probe: Probe) -> None:
    version = tfs.versions_of(probe)[0]["version"]
    got = tfs.answer_of(probe, model_spec={"version": {"value": int(version)}}).get("model_spec", {})
    expect(got.get("name") == model_name(probe) and got.get("version") == version, f"version {version}", got)


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
    for name, info in tfs.default_signature(probe)["inputs"].items():
        _, values = tfs.generate(probe, name, info, first_dimension=1)
        is_float = tfs.TYPES[info["dtype"]][0] in ("float_val", "double_val", "half_val")
        kind = "bytes_list" if info["dtype"] == tfs.STRING else "float_list" if is_float else "int64_list"
        features[name] = {kind: {"value": values}}
    return [{"features": {"feature": features}}] * 2


def _specs(probe: Probe, *methods: str) -> Mapping[str, dict[str, Any]]:
    """Return a ModelSpec for each of `methods` that has a signature; at least one."""
    specs = {
        method: {"name": model_name(probe), "signature_name": name}
        for name, signature in tfs.signatures_of(probe).items()
        for method in methods
        if signature.get("method_name") == f"{_METHOD}{method.lower()}"
    }
    if not specs:
        raise NotApplicableError(f"About models with a signature for {' or '.join(methods)}")
    return specs


def _infer(probe: Probe, method: str, spec: Mapping[str, Any], **kinds: Any) -> dict[str, Any]:
    """Return the result of Classify or Regress, with two examples or the given kind of `Input`."""
    kinds = kinds or {"example_list": {"examples": _examples(probe)}}
    exchange = call_method(probe, PREDICTION_SERVICE, method, model_spec=spec, input=kinds)
    return exchange.expect_accepted().get("result", {})


def _classify(probe: Probe) -> None:
    result = _infer(probe, "Classify", _specs(probe, "Classify")["Classify"])
    counts = [len(row.get("classes", [])) for row in result.get("classifications", [])]
    expect(len(counts) == 2 and all(counts), "classes for each of two examples", result)


def _regress(probe: Probe) -> None:
    result = _infer(probe, "Regress", _specs(probe, "Regress")["Regress"])
    expect(len(result.get("regressions", [])) == 2, "a value for each of two examples", result)


def _multi_inference(probe: Probe) -> None:
    specs = _specs(probe, "Classify", "Regress")
    tasks = [{"model_spec": spec, "method_name": f"{_METHOD}{method.lower()}"} for method, spec in specs.items()]
    examples = {"example_list": {"examples": _examples(probe)}}
    exchange = call_method(probe, PREDICTION_SERVICE, "MultiInference", tasks=tasks, input=examples)
    results = exchange.expect_accepted().get("results", [])
    got = [result.get("classification_result", result.get("regression_result")) for result in results]
    expect(got == [_infer(probe, *item) for item in specs.items()], "the result of each task", got)


def _context(probe: Probe) -> None:
    for method, spec in _specs(probe, "Classify", "Regress").items():
        context: dict[str, Any] = {"examples": [{}, {}], "context": _examples(probe)[0]}
        expected, got = _infer(probe, method, spec), _infer(probe, method, spec, example_list_with_context=context)
        expect(got == expected, quote(expected), got)


def _empty_input(probe: Probe) -> None:
    for method, spec in _specs(probe, "Classify", "Regress").items():
        call_method(probe, PREDICTION_SERVICE, method, model_spec=spec).expect_status(_INVALID)


_SERVER = "TensorFlow Serving"
_CORE, _PREDICT_CODE, _APIS = f"{_SERVER}, its server core", f"{_SERVER}, predict_util.cc", f"{_SERVER}, apis"
_STATUS, _PREDICT = f"{_APIS}/get_model_status.proto", f"{_APIS}/predict.proto"
_TENSOR = "TensorFlow, tensor.proto"
_DESCRIBES, _PREDICTS = ("TFSG-005",), ("TFSG-007",)
_INVALID, _NOT_FOUND = "INVALID_ARGUMENT", "NOT_FOUND"

CHECKS = (
    Check("TFSG-001", MUST, "A request without the name of a model is INVALID_ARGUMENT.", _CORE,
          lambda probe: expect_statuses(_call_without_name(probe), _INVALID)),
    Check("TFSG-002", MUST, "GetModelStatus returns version, state and status of each version.", _STATUS, _status),
    Check("TFSG-003", MUST, "With a version in the request, only that version is returned.",
          _STATUS, tfs.check_version_alone, requires=("TFSG-002",)),
    Check("TFSG-004", SHOULD, "HandleReloadConfigRequest without a configuration is refused.",
          f"{_SERVER}, model_service_impl.cc",
          lambda probe: call_method(probe, MODEL_SERVICE, "HandleReloadConfigRequest").expect_status(
              _INVALID, "UNIMPLEMENTED", "PERMISSION_DENIED")),
    Check("TFSG-005", MUST, "GetModelMetadata returns a SignatureDefMap, with inputs, outputs and methods.",
          f"{_APIS}/get_model_metadata.proto", _metadata),
    Check("TFSG-006", MUST, "Metadata without metadata_field, or of another field, is INVALID_ARGUMENT.",
          f"{_SERVER}, get_model_metadata_impl.cc",
          lambda probe: expect_statuses([tfs.call_metadata(probe), tfs.call_metadata(probe, UNKNOWN)], _INVALID)),
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
          lambda probe: expect_statuses(_call_unknown_model(probe), _NOT_FOUND), requires=_DESCRIBES),
    Check("TFSG-014", MUST, "An unknown version is answered with NOT_FOUND.", f"{_SERVER}, its tests",
          lambda probe: expect_statuses(_call_unknown_version(probe), _NOT_FOUND), requires=_PREDICTS),
    Check("TFSG-015", SHOULD, "An unknown label is answered with INVALID_ARGUMENT.", _CORE,
          lambda probe: tfs.predict(probe, model_spec={"version_label": UNKNOWN}).expect_status(_INVALID),
          requires=_PREDICTS),
    Check("TFSG-016", MUST, "An unknown signature is answered with FAILED_PRECONDITION.", _PREDICT_CODE,
          lambda probe: tfs.predict(probe, model_spec={"signature_name": UNKNOWN}).expect_status("FAILED_PRECONDITION"),
          requires=_PREDICTS),
    Check("TFSG-017", MUST, "An unknown input is INVALID_ARGUMENT.", _PREDICT_CODE,
          lambda probe: tfs.predict(
              probe, inputs={UNKNOWN: tfs.build_tensor(tfs.FLOAT, [1], [1])}).expect_status(_INVALID),
          requires=_PREDICTS),
    Check("TFSG-018", MUST, "An unknown output in output_filter is INVALID_ARGUMENT.", _PREDICT_CODE,
          lambda probe: tfs.predict(probe, output_filter=[UNKNOWN]).expect_status(_INVALID), requires=_PREDICTS),
    Check("TFSG-019", MUST, "An input of another datatype is INVALID_ARGUMENT.", _PREDICT_CODE,
          _wrong_datatype, requires=_PREDICTS),
    Check("TFSG-020", MUST, "tensor_content of another size than shape has is INVALID_ARGUMENT.", _TENSOR,
          lambda probe: tfs.call_predict(probe, _with_content(tfs.build_request(probe), b"\0")).expect_status(_INVALID),
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

PROTOCOLS = (Protocol("tensorflow-serving", rest.CHECKS), Protocol("tensorflow-serving-grpc", CHECKS, rpc=True))
