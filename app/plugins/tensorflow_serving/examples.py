"""Convert examples with named features to tensors, and outputs to a result for each example."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

import msgspec
import numpy as np

from app.core.protocols.kserve_v1.base64_objects import BASE64_KEY, is_base64_object
from app.core.wire.bytes_elements import BinaryElement, StringElement
from app.plugins.tensorflow_serving.signatures import Method, Signature
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

    Raise INVALID_REQUEST.
    """
    context = _example(document["context"]) if "context" in document else {}
    examples = document.get("examples")
    if not isinstance(examples, list) or not examples:
        raise invalid(f"Expected a list of at least one example, got {examples!r:.80}", "examples")
    return [{**context, **_example(example)} for example in cast("list[object]", examples)]


def example_tensors(examples: Sequence[Example], signature: Signature) -> Mapping[str, InputTensor]:
    """Return the model's input tensors, with a row for each example, from the features with the same names.

    Raise INVALID_REQUEST for a feature that is missing, or has another kind or size.
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

    Raise INVALID_REQUEST when the model's output does not have a row for each example.
    """
    tensors = {tensor.name: tensor for tensor in response.stack()}
    if not signature.returns_tensors:
        scores, labels = tensors["scores"].data, tensors["labels"].data
        return [
            _pairs([label.decode() for label in names[:size]], values[:size])
            for size, names, values in zip(tensors["num_classes"].data, labels, scores, strict=True)
        ]
    ((name, output),) = tensors.items()
    is_regression = signature.method is Method.REGRESS
    if len(output.shape) not in (1, 2) or output.shape[0] != count or (is_regression and output.data.size != count):
        expected = f"Expected a row of scores for each of the {count} examples"
        raise invalid(f"{expected}, got the shape {list(output.shape)}", name)
    if is_regression:
        return output.data.ravel().tolist()
    scores = output.data.reshape(count, -1)
    labels = signature.labels if len(signature.labels) == scores.shape[1] else [""] * scores.shape[1]
    return [_pairs(labels, row) for row in scores]


def _pairs(labels: Sequence[str], scores: Any) -> list[tuple[str, float]]:
    return list(zip(labels, scores.tolist(), strict=True))


def _example(value: object) -> dict[str, Feature]:
    if not isinstance(value, dict):
        raise invalid(f"Expected an example, an object of features, got {quote_value(value)}")
    return {name: _feature(name, content) for name, content in cast("dict[str, object]", value).items()}


def _feature(name: str, content: object) -> Feature:
    values = cast("list[object]", content) if isinstance(content, list) else [content]
    kind: FeatureKind | None = None
    decoded_values: list[Any] = []
    for value in values:
        value_kind, decoded_value = _value(name, value)
        if kind not in (None, value_kind):
            raise invalid(f"Expected values of one type, {kind}, got {quote_value(value)}", name)
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
            raise invalid(f"Expected integers of 64 bits with a sign, got {value}", name)
        return FeatureKind.INT64, value
    if isinstance(value, int | float):
        try:
            return FeatureKind.FLOAT, float(value)
        except OverflowError:
            raise invalid("Expected a number that a double can hold, got a larger one", name) from None
    raise invalid(f'Expected texts, numbers or {{"b64": "<base64>"}}, got {quote_value(value)}', name)


def _tensor(spec: TensorSpec, examples: Sequence[Example], signature: Signature) -> InputTensor:
    rows = [_row(spec, index, example) for index, example in enumerate(examples)]
    row_shape = spec.shape[1:] if signature.takes_tensors else (1,)
    known_size = math.prod(size for size in row_shape if size != -1)
    size = len(rows[0]) if -1 in row_shape else known_size
    for index, row in enumerate(rows):
        feature_path = f"examples[{index}].{spec.name}"
        if -1 in row_shape and known_size and len(row) % known_size:
            raise invalid(f"Expected a multiple of {known_size} values, got {len(row)}", feature_path)
        if len(row) != size:
            raise invalid(f"Expected {size} values, got {len(row)}", feature_path)
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
    kind = None if feature is None else feature.kind
    fits = kind is expected_kind or (expected_kind is FeatureKind.FLOAT and kind is FeatureKind.INT64)
    if feature is None or not fits:
        message = f"Expected a feature of type {expected_kind}, got {kind or 'none'}"
        raise invalid(message, f"examples[{index}].{spec.name}")
    return feature.values


def _kind(datatype: Datatype) -> FeatureKind:
    if datatype is Datatype.BYTES:
        return FeatureKind.BYTES
    return FeatureKind.FLOAT if datatype.kind == "f" else FeatureKind.INT64


def _array(spec: TensorSpec, values: Sequence[Any]) -> Any:
    if not spec.datatype.has_json_form:
        raise InferenceError(ErrorKind.UNSUPPORTED, f"Features have no form for {spec.datatype}", spec.name)
    try:
        with np.errstate(over="ignore"):
            return np.array(values, spec.datatype.dtype)
    except OverflowError:
        raise invalid(f"Expected {spec.datatype} numbers, got one out of range", spec.name) from None
