"""Convert `Input`, examples with named features, and the results of examples to and from protobuf messages."""

from collections.abc import Sequence
from typing import Any

from app.proto import message_class
from app.protocols.tensorflow_serving.examples import Example, Feature, FeatureKind
from app.wire.bytes_elements import BinaryElement
from tasks.inference.error import invalid

_ClassificationResult = message_class("tensorflow.serving.ClassificationResult")
_RegressionResult = message_class("tensorflow.serving.RegressionResult")

_KINDS = {
    "bytes_list": FeatureKind.BYTES,
    "float_list": FeatureKind.FLOAT,
    "int64_list": FeatureKind.INT64,
}


def read_input(message: Any) -> Sequence[Example]:
    """Return the examples of an `Input`. Each includes the features of the shared context, which it may override.

    Raises:
        InferenceError: INVALID_REQUEST for an input without examples.
    """
    kind = message.WhichOneof("kind")
    content = getattr(message, kind) if kind else None
    if content is None or not content.examples:
        raise invalid("Input is empty.")
    context: Example = _example(content.context) if kind == "example_list_with_context" else {}
    return [{**context, **_example(example)} for example in content.examples]


def encode_classifications(rows: Sequence[Any]) -> Any:
    """Return pairs of label and score, a row for each example, as a `ClassificationResult`."""
    result = _ClassificationResult()
    for row in rows:
        classes = result.classifications.add().classes
        for label, score in row:
            classes.add(label=label, score=score)
    return result


def encode_regressions(numbers: Sequence[float]) -> Any:
    """Return a number for each example as a `RegressionResult`."""
    result = _RegressionResult()
    for number in numbers:
        result.regressions.add(value=number)
    return result


def _example(message: Any) -> Example:
    return {name: _feature(feature) for name, feature in message.features.feature.items()}


def _feature(message: Any) -> Feature:
    field = message.WhichOneof("kind")
    if field is None:
        return Feature(None, ())
    values = getattr(message, field).value
    kind = _KINDS[field]
    return Feature(kind, [BinaryElement(value) for value in values] if kind is FeatureKind.BYTES else list(values))
