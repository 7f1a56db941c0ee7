"""Decode requests of `:classify` and `:regress`, examples with named features, and encode their responses."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

import msgspec
import numpy as np

from app.protocols.bytes_elements import BinaryElement, StringElement, is_b64
from app.protocols.tensorflow_serving.document import format_error, type_name
from app.protocols.tensorflow_serving.dtypes import short_name
from app.protocols.tensorflow_serving.signatures import Method, Signature
from app.protocols.tensorflow_serving.values import decoded_base64
from app.protocols.tensorflow_serving.writing import array_text, decimals, document_text, string_text
from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import BytesTensor, Datatype, Element, InputTensor, Tensor, TensorSpec

__all__ = ("Example", "encode_results", "example_tensors", "read_examples")

_MAX_INT64 = 2**63 - 1


class Kind(StrEnum):
    """The types of feature values, as in `Feature` of `feature.proto`."""

    BYTES = "bytes"
    FLOAT = "float"
    INT64 = "int64"


class Feature(msgspec.Struct, frozen=True, eq=False):
    """The values of one feature, all of one kind; None for a feature without values."""

    kind: Kind | None
    values: Sequence[Any]


Example = Mapping[str, Feature]


def read_examples(document: Mapping[str, object]) -> Sequence[Example]:
    """Return the examples of a request. Each includes the features of the shared context, which it may override.

    Raises:
        InferenceError: INVALID_REQUEST.
    """
    context = _example(document["context"]) if "context" in document else {}
    if "examples" not in document:
        raise format_error(document, "When method is classify, key 'examples' is expected and was not found")
    examples = document["examples"]
    if not isinstance(examples, list):
        raise format_error(document, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise format_error(document, "'examples' value is an empty array")
    return [{**context, **_example(example)} for example in cast("list[object]", examples)]


def example_tensors(examples: Sequence[Example], signature: Signature) -> Mapping[str, InputTensor]:
    """Return the model's input tensors, with a row for each example, from the features with the same names.

    Raises:
        InferenceError: INVALID_REQUEST for a feature that is missing, or has another kind or size.
    """
    known = [{signature.aliases.get(name, name): feature for name, feature in example.items()} for example in examples]
    return {
        name: _tensor(spec, known, signature)
        for name, spec in signature.inputs.items()
        if name not in signature.optional
    }


def encode_results(response: InferenceResponse, count: int, signature: Signature) -> bytes:
    """Encode the response body for `count` examples.

    Raises:
        InferenceError: INVALID_REQUEST when the model's output does not have a row for each example.
    """
    predictions = [prediction for output in response.outputs for prediction in output.predictions]
    tensors = {tensor.name: tensor for tensor in type(predictions[0]).stack(predictions)}
    if not signature.tensors:
        scores, labels = tensors["scores"].data, tensors["labels"].data
        rows = [
            _pairs([label.decode() for label in names[:size]], values[:size])
            for size, names, values in zip(tensors["num_classes"].data, labels, scores, strict=True)
        ]
        return document_text("results", array_text(rows))
    ((name, output),) = tensors.items()
    if signature.method is Method.REGRESS:
        return document_text("results", array_text(decimals(_regressions(output, count))))
    if len(output.shape) not in (1, 2):
        raise invalid(f"Expected Tensor shape: [batch_size num_classes] but got {_shape(output)}", name)
    if output.shape[0] != count:
        raise invalid(f"Expected scores output batch size of {count}. Got: {output.shape[0]}", name)
    scores = output.data.reshape(count, -1)
    labels = signature.labels if len(signature.labels) == scores.shape[1] else [""] * scores.shape[1]
    return document_text("results", array_text([_pairs(labels, row) for row in scores]))


def _regressions(output: Tensor, count: int) -> Any:
    if len(output.shape) != 1 and output.shape[1:] != (1,):
        message = f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {_shape(output)}"
        raise invalid(message)
    if output.shape[0] != count:
        raise invalid(f"Input batch size did not match output batch size: {count} vs. {output.shape[0]}")
    return output.data.ravel()


def _pairs(labels: Sequence[str], scores: Any) -> str:
    texts = zip(labels, decimals(scores), strict=True)
    return array_text([array_text([string_text(label), score]) for label, score in texts])


def _shape(tensor: Tensor) -> str:
    return f"[{','.join(map(str, tensor.shape))}]"


def _example(value: object) -> dict[str, Feature]:
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {type_name(value)}")
    return {name: _feature(name, content) for name, content in cast("dict[str, object]", value).items()}


def _feature(name: str, content: object) -> Feature:
    values = cast("list[object]", content) if isinstance(content, list) else [content]
    kind: Kind | None = None
    read: list[Any] = []
    for value in values:
        found, plain = _value(name, value)
        if kind not in (None, found):
            raise invalid(f"Unexpected element type in feature: {name} expecting type: {kind}")
        kind = found
        read.append(plain)
    return Feature(kind, read)


def _value(name: str, value: object) -> tuple[Kind, object]:
    if is_b64(value):
        return Kind.BYTES, BinaryElement(decoded_base64(value))
    if isinstance(value, str):
        return Kind.BYTES, StringElement(value)
    if isinstance(value, bool):
        return Kind.INT64, int(value)
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        if value > _MAX_INT64:
            raise invalid(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
        return Kind.INT64, value
    if isinstance(value, int | float):
        try:
            return Kind.FLOAT, float(value)
        except OverflowError:
            raise invalid("JSON Parse error: Number too big to be stored in double.") from None
    raise invalid(f"Feature: {name} has element with unexpected JSON type: {type_name(value)}")


def _tensor(spec: TensorSpec, examples: Sequence[Example], signature: Signature) -> InputTensor:
    rows = [_row(spec, index, example) for index, example in enumerate(examples)]
    inner = spec.shape[1:] if signature.tensors else (1,)
    known = math.prod(size for size in inner if size != -1)
    size = len(rows[0]) if -1 in inner else known
    for index, row in enumerate(rows):
        where = f"examples[{index}].{spec.name}"
        if -1 in inner and known and len(row) % known:
            raise invalid(f"Expected a multiple of {known} values of feature {spec.name}, got {len(row)}", where)
        if len(row) != size:
            raise invalid(f"Expected {size} values of feature {spec.name}, got {len(row)}", where)
    values = [value for row in rows for value in row]
    free = size // known if known else 0
    shape = (
        (len(rows), *(free if dimension == -1 else dimension for dimension in inner))
        if signature.tensors
        else (len(rows),)
    )
    if spec.datatype is Datatype.BYTES:
        return BytesTensor(name=spec.name, shape=shape, elements=cast("list[Element]", values))
    return Tensor(name=spec.name, datatype=spec.datatype, data=_array(spec, values).reshape(shape))


def _row(spec: TensorSpec, index: int, example: Example) -> Sequence[Any]:
    wanted = _kind(spec.datatype)
    feature = example.get(spec.name)
    if feature is None or feature.kind is None:
        message = f"Feature: {spec.name} (data type: {wanted}) is required but could not be found."
        raise invalid(message, f"examples[{index}].{spec.name}")
    fits = feature.kind is wanted or (wanted is Kind.FLOAT and feature.kind is Kind.INT64)
    if not fits:
        message = f"Data types don't match. Data type: {feature.kind} but expected type: {wanted}"
        raise invalid(message, f"examples[{index}].{spec.name}")
    return feature.values


def _kind(datatype: Datatype) -> Kind:
    if datatype is Datatype.BYTES:
        return Kind.BYTES
    return Kind.FLOAT if datatype.kind == "f" else Kind.INT64


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
