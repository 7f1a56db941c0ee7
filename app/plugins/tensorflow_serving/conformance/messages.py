"""Send TensorFlow Serving's requests over REST or gRPC, and read the metadata, which is JSON over both."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.plugins.conformance.check import expect
from app.plugins.conformance.client.calls import GrpcCall, call, call_method, parse_request
from app.plugins.conformance.client.exchange import InconclusiveError, quote
from app.plugins.conformance.client.model_names import model_name
from app.plugins.conformance.client.probe import Probe
from app.plugins.conformance.instances import model_path
from app.plugins.conformance.sample_images import SAMPLE_IMAGES
from app.plugins.conformance.tensors import TEXTS, element_count, is_list, is_object, suggests_text
from app.plugins.tensorflow_serving.proto import MODEL_SERVICE, PREDICTION_SERVICE, message_class

SIGNATURE_DEF = "signature_def"
FLOAT, STRING = "DT_FLOAT", "DT_STRING"
TYPES: Mapping[str, tuple[str, str]] = {
    FLOAT: ("float_val", "<f4"),
    "DT_DOUBLE": ("double_val", "<f8"),
    "DT_INT32": ("int_val", "<i4"),
    "DT_UINT8": ("int_val", "u1"),
    "DT_INT16": ("int_val", "<i2"),
    "DT_INT8": ("int_val", "i1"),
    STRING: ("string_val", ""),
    "DT_INT64": ("int64_val", "<i8"),
    "DT_BOOL": ("bool_val", "?"),
    "DT_BFLOAT16": ("half_val", "<u2"),
    "DT_UINT16": ("int_val", "<u2"),
    "DT_HALF": ("half_val", "<u2"),
    "DT_UINT32": ("uint32_val", "<u4"),
    "DT_UINT64": ("uint64_val", "<u8"),
}
"""The field of `TensorProto` and the numpy dtype of tensor_content by the name of the datatype.

The 16-bit floating-point datatypes are written as their bits.
"""

_PredictRequest = message_class("tensorflow.serving.PredictRequest")
_DATA_TYPES: Any = message_class("tensorflow.TensorProto").DESCRIPTOR.fields_by_name["dtype"].enum_type


def call_status(probe: Probe, **spec: Any) -> GrpcCall:
    """Call `GetModelStatus`; `spec` is the rest of the ModelSpec."""
    return call_method(probe, MODEL_SERVICE, "GetModelStatus", model_spec={"name": model_name(probe), **spec})


def versions_of(probe: Probe, version: str = "") -> Sequence[Any]:
    """Return the versions of the model with their states, or only `version`; at least one."""
    if probe.transport:
        exchange = call_status(probe, **({"version": {"value": int(version)}} if version else {}))
    else:
        exchange = probe.get(model_path(probe) + (f"/versions/{version}" if version else ""))
    versions: Any = exchange.expect_object().get("model_version_status")
    expect(is_list(versions) and versions, "an array of model_version_status", versions)
    return versions


def check_version_alone(probe: Probe) -> None:
    """Check that only the requested version is returned."""
    version = versions_of(probe)[0].get("version")
    got = [entry.get("version") for entry in versions_of(probe, version)]
    expect(got == [version], f"version {version} alone", got)


def call_metadata(probe: Probe, *fields: str, **spec: Any) -> GrpcCall:
    """Call `GetModelMetadata` for `fields`; `spec` is the rest of the ModelSpec."""
    spec = {"name": model_name(probe), **spec}
    return call_method(probe, PREDICTION_SERVICE, "GetModelMetadata", model_spec=spec, metadata_field=fields)


def signatures_of(probe: Probe) -> Mapping[str, Any]:
    """Return the signatures of the metadata by name."""
    exchange = call_metadata(probe, SIGNATURE_DEF) if probe.transport else probe.get(f"{model_path(probe)}/metadata")
    metadata = exchange.expect_object().get("metadata")
    definitions = metadata.get("signature_def") if is_object(metadata) else None
    signatures: Any = definitions.get("signature_def") if is_object(definitions) else None
    expect(is_object(signatures), "metadata.signature_def.signature_def", metadata)
    return signatures


def default_signature(probe: Probe) -> Mapping[str, Any]:
    """Return the signature serving_default, which has inputs.

    Raise InconclusiveError if the metadata has none, or not its inputs.
    """
    signature = signatures_of(probe).get("serving_default")
    if not is_object(signature):
        raise InconclusiveError("There is no signature serving_default in the metadata")
    inputs: Any = signature.get("inputs")
    if not is_object(inputs) or not inputs or not all(map(is_object, inputs.values())):
        raise InconclusiveError(f"The inputs of serving_default are not known: {quote(inputs)}")
    return signature


def sizes_of(tensor: Mapping[str, Any]) -> list[int]:
    """Return the dimensions of a tensor or a `TensorInfo`, -1 for any size."""
    return [int(dimension.get("size", 0)) for dimension in tensor.get("tensor_shape", {}).get("dim", [])]


def generate(
    probe: Probe, name: str, info: Mapping[str, Any], *, first_dimension: int = 0, image_index: int = 0
) -> tuple[list[int], list[Any]]:
    """Return a shape that fits the metadata, of two rows if their number is free, with ones, images or texts.

    Raise InconclusiveError if the datatype or the shape is not known, or there are too many elements.
    """
    dtype = str(info.get("dtype"))
    if dtype not in TYPES:
        raise InconclusiveError(f"The datatype of {name} is not known; give a message with --request")
    try:
        sizes = sizes_of(info)
    except (AttributeError, TypeError, ValueError):
        raise InconclusiveError(f"The shape of {name} is not known: {quote(info)}") from None
    shape = [size if size >= 0 else 1 if index else 2 for index, size in enumerate(sizes)][first_dimension:]
    element: object = True if dtype == "DT_BOOL" else 1
    if dtype == STRING and suggests_text(name):
        element = TEXTS[0].encode() if probe.transport else TEXTS[0]
    elif dtype == STRING:
        image = SAMPLE_IMAGES[image_index].data
        element = image if probe.transport else {"b64": image}
    return shape, [element] * element_count(shape)


def build_tensor(dtype: str, shape: Sequence[int], elements: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of a `TensorProto`."""
    dimensions = {"dim": [{"size": size} for size in shape]}
    return {"dtype": dtype, "tensor_shape": dimensions, TYPES[dtype][0]: elements}


def fields_of(tensor: Any) -> tuple[str, str]:
    """Return the field and the numpy dtype of a `TensorProto`, as in `TYPES`."""
    return TYPES[_DATA_TYPES.values_by_number[tensor.dtype].name]


def build_request(probe: Probe, **fields: Any) -> Any:
    """Return the given request over gRPC, or one that is generated from the metadata, with other `fields`."""
    if probe.target.request:
        request = parse_request(probe.target.request, _PredictRequest.DESCRIPTOR.full_name)
    else:
        inputs = default_signature(probe)["inputs"].items()
        tensors = {name: build_tensor(info["dtype"], *generate(probe, name, info)) for name, info in inputs}
        request = _PredictRequest(inputs=tensors)
    request.model_spec.name = model_name(probe)
    request.MergeFrom(_PredictRequest(**fields))
    return request


def call_predict(probe: Probe, request: Any, *, fresh: bool = False) -> GrpcCall:
    """Call `Predict`."""
    return call(probe, PREDICTION_SERVICE, "Predict", request, fresh=fresh)


def predict(probe: Probe, **fields: Any) -> GrpcCall:
    """Call `Predict` with the given or generated request and other `fields`."""
    return call_predict(probe, build_request(probe, **fields))


def answer_of(probe: Probe, **fields: Any) -> dict[str, Any]:
    """Return the accepted response to `predict` in protobuf's JSON, which must have outputs."""
    answer = predict(probe, **fields).expect_accepted()
    expect(answer.get("outputs"), "outputs", {})
    return answer
