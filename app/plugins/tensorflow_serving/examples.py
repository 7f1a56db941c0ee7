"""Convert examples with named features to tensors, and outputs to a result for each example."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

import msgspec
import numpy as np

from app.core.wire.bytes_elements import BASE64_KEY, BinaryElement, StringElement, is_base64_object
from app.plugins.tensorflow_serving.signatures import Method, Signature, short_name
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor, Datatype, Element, InputTensor, Tensor, TensorSpec

_MAX_INT64 = 2**63 - 1


class FeatureKind(StrEnum):
    """The types of feature values, as in `Feature` of `feature.proto`."""

    BYTES = "bytes"
    FLOAT = "float"
    INT64 = "int64"


class Feature(msgspec.Struct, frozen=True, eq=False):
    """The values of one feature, all of one kind; None for a feature without values."""

    kind: FeatureKind | None
    values: Sequence[Any]


Example = Mapping[str, Feature]


def read_examples(document: Mapping[str, object]) -> Sequence[Example]:
    """Return the examples of a request. Each includes the features of the shared context, which it may override.

    Raises:
        InferenceError: INVALID_REQUEST.
    """
    context = _example(document["context"]) if "context" in document else {}
    if "examples" not in document:
        raise invalid("When method is classify, key 'examples' is expected and was not found")
    examples = document["examples"]
    if not isinstance(examples, list):
        raise invalid("Expecting 'examples' value to be an list/array")
    if not examples:
        raise invalid("'examples' value is an empty array")
    return [{**context, **_example(example)} for example in cast("list[object]", examples)]


def example_tensors(examples: Sequence[Example], signature: Signature) -> Mapping[str, InputTensor]:
    """Return the model's input tensors, with a row for each example, from the features with the same names.

    Raises:
        InferenceError: INVALID_REQUEST for a feature that is missing, or has another kind or size.
    """
    canonical_examples = [
        {signature.aliases.get(name, name): feature for name, feature in example.items()} for example in examples
    ]
    return {
        name: _tensor(spec, canonical_examples, signature)
        for name, spec in signature.inputs.items()
        if name not in signature.optional
    }


def example_results(response: InferenceResponse, count: int, signature: Signature) -> Sequence[Any]:
    """Return a result for each of `count` examples: pairs of label and score, or a number for a regression.

    Raises:
        InferenceError: INVALID_REQUEST when the model's output does not have a row for each example.
    """
    tensors = {tensor.name: tensor for tensor in response.stack()}
    if not signature.returns_tensors:
        scores, labels = tensors["scores"].data, tensors["labels"].data
        return [
            _pairs([label.decode() for label in names[:size]], values[:size])
            for size, names, values in zip(tensors["num_classes"].data, labels, scores, strict=True)
        ]
    ((name, output),) = tensors.items()
    if signature.method is Method.REGRESS:
        return _regressions(output, count).tolist()
    if len(output.shape) not in (1, 2):
        raise invalid(f"Expected Tensor shape: [batch_size num_classes] but got {_shape(output)}", name)
    if output.shape[0] != count:
        raise invalid(f"Expected scores output batch size of {count}. Got: {output.shape[0]}", name)
    scores = output.data.reshape(count, -1)
    labels = signature.labels if len(signature.labels) == scores.shape[1] else [""] * scores.shape[1]
    return [_pairs(labels, row) for row in scores]


def _regressions(output: Tensor, count: int) -> Any:
    if len(output.shape) != 1 and output.shape[1:] != (1,):
        message = f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {_shape(output)}"
        raise invalid(message)
    if output.shape[0] != count:
        raise invalid(f"Input batch size did not match output batch size: {count} vs. {output.shape[0]}")
    return output.data.ravel()


def _pairs(labels: Sequence[str], scores: Any) -> list[tuple[str, float]]:
    return list(zip(labels, scores.tolist(), strict=True))


def _shape(tensor: Tensor) -> str:
    return f"[{','.join(map(str, tensor.shape))}]"


def _example(value: object) -> dict[str, Feature]:
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got {quote_value(value)}")
    return {name: _feature(name, content) for name, content in cast("dict[str, object]", value).items()}


def _feature(name: str, content: object) -> Feature:
    values = cast("list[object]", content) if isinstance(content, list) else [content]
    kind: FeatureKind | None = None
    decoded_values: list[Any] = []
    for value in values:
        value_kind, decoded_value = _value(name, value)
        if kind not in (None, value_kind):
            raise invalid(f"Unexpected element type in feature: {name} expecting type: {kind}")
        kind = value_kind
        decoded_values.append(decoded_value)
    return Feature(kind, decoded_values)


def _value(name: str, value: object) -> tuple[FeatureKind, object]:
    if is_base64_object(value):
        return FeatureKind.BYTES, BinaryElement(StringElement(value[BASE64_KEY]).binary())
    if isinstance(value, str):
        return FeatureKind.BYTES, StringElement(value)
    if isinstance(value, bool):
        return FeatureKind.INT64, int(value)
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        if value > _MAX_INT64:
            raise invalid(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
        return FeatureKind.INT64, value
    if isinstance(value, int | float):
        try:
            return FeatureKind.FLOAT, float(value)
        except OverflowError:
            raise invalid("JSON Parse error: Number too big to be stored in double.") from None
    raise invalid(f"Feature: {name} has element with unexpected JSON value: {quote_value(value)}")


def _tensor(spec: TensorSpec, examples: Sequence[Example], signature: Signature) -> InputTensor:
    rows = [_row(spec, index, example) for index, example in enumerate(examples)]
    row_shape = spec.shape[1:] if signature.takes_tensors else (1,)
    known_size = math.prod(size for size in row_shape if size != -1)
    size = len(rows[0]) if -1 in row_shape else known_size
    for index, row in enumerate(rows):
        feature_path = f"examples[{index}].{spec.name}"
        if -1 in row_shape and known_size and len(row) % known_size:
            raise invalid(
                f"Expected a multiple of {known_size} values of feature {spec.name}, got {len(row)}", feature_path
            )
        if len(row) != size:
            raise invalid(f"Expected {size} values of feature {spec.name}, got {len(row)}", feature_path)
    values = [value for row in rows for value in row]
    free_size = size // known_size if known_size else 0
    shape = (
        (len(rows), *(free_size if dimension == -1 else dimension for dimension in row_shape))
        if signature.takes_tensors
        else (len(rows),)
    )
    if spec.datatype is Datatype.BYTES:
        return BytesTensor(name=spec.name, shape=shape, elements=cast("list[Element]", values))
    return Tensor(name=spec.name, datatype=spec.datatype, data=_array(spec, values).reshape(shape))


def _row(spec: TensorSpec, index: int, example: Example) -> Sequence[Any]:
    expected_kind = _kind(spec.datatype)
    feature = example.get(spec.name)
    if feature is None or feature.kind is None:
        message = f"Feature: {spec.name} (data type: {expected_kind}) is required but could not be found."
        raise invalid(message, f"examples[{index}].{spec.name}")
    fits = feature.kind is expected_kind or (expected_kind is FeatureKind.FLOAT and feature.kind is FeatureKind.INT64)
    if not fits:
        message = f"Data types don't match. Data type: {feature.kind} but expected type: {expected_kind}"
        raise invalid(message, f"examples[{index}].{spec.name}")
    return feature.values


def _kind(datatype: Datatype) -> FeatureKind:
    if datatype is Datatype.BYTES:
        return FeatureKind.BYTES
    return FeatureKind.FLOAT if datatype.kind == "f" else FeatureKind.INT64


def _array(spec: TensorSpec, values: Sequence[Any]) -> Any:
    if not spec.datatype.has_json_form:
        message = f"Conversion of a feature to type: {short_name(spec.datatype)}"
        raise InferenceError(ErrorKind.UNSUPPORTED, message)
    try:
        with np.errstate(over="ignore"):
            return np.array(values, spec.datatype.dtype)
    except OverflowError:
        message = f"Expected values of type {short_name(spec.datatype)}, got one out of range"
        raise invalid(message, spec.name) from None
