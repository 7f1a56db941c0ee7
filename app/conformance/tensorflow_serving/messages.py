"""Build TensorFlow Serving's requests over gRPC: for the state, the metadata and predictions of the checked model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from app.conformance.check import InconclusiveError, ViolationError, expect
from app.conformance.client.calls import GrpcCall, call, call_method, first_response, parse_request
from app.conformance.client.model_names import model_name
from app.conformance.client.probe import Probe
from app.conformance.sample_images import SAMPLE_IMAGES
from app.conformance.tensors import TEXT, element_count, expect_accepted, suggests_text
from app.proto import MODEL_SERVICE, PREDICTION_SERVICE, message_class

SIGNATURE_DEF = "signature_def"
FLOAT, STRING = 1, 7
TYPES: Mapping[int, tuple[str, str]] = {
    FLOAT: ("float_val", "<f4"),
    2: ("double_val", "<f8"),
    3: ("int_val", "<i4"),
    4: ("int_val", "u1"),
    5: ("int_val", "<i2"),
    6: ("int_val", "i1"),
    STRING: ("string_val", ""),
    9: ("int64_val", "<i8"),
    10: ("bool_val", "?"),
    14: ("half_val", "<u2"),
    17: ("int_val", "<u2"),
    19: ("half_val", "<u2"),
    22: ("uint32_val", "<u4"),
    23: ("uint64_val", "<u8"),
}
"""The field of `TensorProto` and the numpy dtype of tensor_content by the number of `DataType`.

The 16-bit floating-point datatypes are written as their bits.
"""

_PredictRequest = message_class("tensorflow.serving.PredictRequest")


def call_status(probe: Probe, **spec: Any) -> GrpcCall:
    """Call `GetModelStatus`; `spec` is the rest of the ModelSpec."""
    return call_method(probe, MODEL_SERVICE, "GetModelStatus", model_spec={"name": model_name(probe), **spec})


def versions_of(probe: Probe, **spec: Any) -> Sequence[Any]:
    """Return the versions of the model with their states, at least one."""
    versions = first_response(call_status(probe, **spec)).model_version_status
    expect(versions, "versions in model_version_status", [])
    return versions


def call_metadata(probe: Probe, *fields: str, **spec: Any) -> GrpcCall:
    """Call `GetModelMetadata` for `fields`; `spec` is the rest of the ModelSpec."""
    spec = {"name": model_name(probe), **spec}
    return call_method(probe, PREDICTION_SERVICE, "GetModelMetadata", model_spec=spec, metadata_field=fields)


def signatures_of(probe: Probe) -> Mapping[str, Any]:
    """Return the signatures of the metadata by name."""
    metadata = first_response(call_metadata(probe, SIGNATURE_DEF)).metadata
    definitions = message_class("tensorflow.serving.SignatureDefMap")()
    if SIGNATURE_DEF not in metadata or not metadata[SIGNATURE_DEF].Unpack(definitions):
        raise ViolationError(f"Expected a SignatureDefMap as signature_def, got {', '.join(metadata) or 'nothing'}")
    return definitions.signature_def


def default_signature(probe: Probe) -> Any:
    """Return the signature serving_default.

    Raises:
        InconclusiveError: the metadata has none.
    """
    if (signature := signatures_of(probe).get("serving_default")) is None:
        raise InconclusiveError("There is no signature serving_default in the metadata")
    return signature


def size_of(tensor: Any) -> int:
    """Return the number of elements that the shape of a tensor implies."""
    return math.prod(dimension.size for dimension in tensor.tensor_shape.dim)


def generate(name: str, info: Any, first_dimension: int = 0) -> tuple[list[int], list[Any]]:
    """Return a shape that fits the metadata, of two rows if their number is free, with ones, images or texts.

    Raises:
        InconclusiveError: the datatype is not known, or there are too many elements.
    """
    if info.dtype not in TYPES:
        raise InconclusiveError(f"The datatype of {name} is not known; give a message with --request")
    sizes = [dimension.size for dimension in info.tensor_shape.dim]
    shape = [size if size >= 0 else 1 if index else 2 for index, size in enumerate(sizes)][first_dimension:]
    element: object = 1
    if info.dtype == STRING:
        element = TEXT.encode() if suggests_text(name) else SAMPLE_IMAGES[0].data
    return shape, [element] * element_count(shape)


def build_tensor(dtype: int, shape: Sequence[int], elements: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of a `TensorProto`."""
    dimensions = {"dim": [{"size": size} for size in shape]}
    return {"dtype": dtype, "tensor_shape": dimensions, TYPES[dtype][0]: elements}


def build_request(probe: Probe, **fields: Any) -> Any:
    """Return the given request, or one that is generated from the metadata, with other `fields`."""
    if probe.target.request:
        request = parse_request(probe.target.request, _PredictRequest.DESCRIPTOR.full_name)
    else:
        inputs = default_signature(probe).inputs.items()
        tensors = {name: build_tensor(info.dtype, *generate(name, info)) for name, info in inputs}
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


def answer_of(probe: Probe, **fields: Any) -> Any:
    """Return the response to `predict`.

    Raises:
        InconclusiveError: the engine rejects the request.
        ViolationError: there are no outputs.
    """
    answer = expect_accepted(predict(probe, **fields))
    expect(answer.outputs, "outputs", {})
    return answer
