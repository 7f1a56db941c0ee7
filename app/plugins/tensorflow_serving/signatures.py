"""Signatures of a model, made from its inputs and outputs, because ONNX has no signatures.

Every model has `serving_default` for `:predict`. A model with one FP32 value for each example also has
`tensorflow/serving/regress`. A classifier, or a model with FP32 scores, also has `tensorflow/serving/classify`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from app.core.engine.models.servable import Servable
from app.core.protocols.kserve_v1.instances import INPUT_ALIASES, PROMPT_NAMES, PROMPTS, takes_prompts
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import TaskType

SHORT_NAMES = {datatype: datatype.lower() for datatype in Datatype} | {
    Datatype.FP16: "half",
    Datatype.FP32: "float",
    Datatype.FP64: "double",
    Datatype.BF16: "bfloat16",
    Datatype.BYTES: "string",
}
"""The datatypes' names in messages, such as ``float``."""

DEFAULT_SIGNATURE = "serving_default"
SIGNATURE_NAME = "signature_name"
_CLASSIFICATION = frozenset({"num_classes", "labels", "scores"})
PROMPTS_INPUT = TensorSpec(name=PROMPTS, datatype=Datatype.BYTES, shape=(-1, -1))
_EXAMPLES: dict[str, Any] = {
    "dtype": "DT_STRING",
    "tensor_shape": {"dim": [], "unknown_rank": True},
    "name": "tf_example:0",
}


def enum_name(datatype: Datatype) -> str:
    """Return the name in metadata, such as ``DT_FLOAT`` (`types.proto`)."""
    return f"DT_{SHORT_NAMES[datatype].upper()}"


DATATYPES = {enum_name(datatype): datatype for datatype in Datatype}
"""The datatypes by their names in metadata."""


class Method(StrEnum):
    """The method of a signature, as named in the model's metadata."""

    PREDICT = "tensorflow/serving/predict"
    CLASSIFY = "tensorflow/serving/classify"
    REGRESS = "tensorflow/serving/regress"


class UnknownSignatureError(InferenceError):
    """A predict request names a signature that the model does not have. gRPC has a status of its own for it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorKind.INVALID_REQUEST, message, SIGNATURE_NAME)


class Signature(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A named interface of a model.

    Attributes:
        name: the name in requests.
        method: the method that uses it.
        takes_tensors: whether the model takes any tensors, without a task type that gives them a meaning.
        returns_tensors: whether it returns any tensors.
        inputs: the input tensors of `:predict`, or the features of an example.
        optional: names of inputs that may be missing.
        aliases: alternative input names, with the name that each stands for.
        outputs: the output tensors.
        labels: class names, for a tensor model that declares some.
    """

    name: str
    method: Method
    takes_tensors: bool
    returns_tensors: bool
    inputs: Mapping[str, TensorSpec]
    optional: frozenset[str]
    aliases: Mapping[str, str]
    outputs: Mapping[str, TensorSpec]
    labels: Sequence[str]

    @property
    def required(self) -> Sequence[str]:
        """Return the names of the inputs that every request has."""
        return [name for name in self.inputs if name not in self.optional]


def signatures(servable: Servable) -> Mapping[str, Signature]:
    """Return every signature of a model by name."""
    returns_tensors = servable.description.task_type is TaskType.TENSOR
    result = [_default_signature(servable)]
    by_name = result[0].outputs
    if not returns_tensors and set(by_name) >= _CLASSIFICATION:
        class_outputs = {"classes": by_name["labels"], "scores": by_name["scores"]}
        result.append(_signature(servable, Method.CLASSIFY.value, Method.CLASSIFY, class_outputs))
    elif returns_tensors and _takes_examples(servable):
        (output,) = servable.outputs
        if len(output.shape) == 1 or output.shape[1] == 1:
            result.append(_signature(servable, Method.REGRESS.value, Method.REGRESS, {"outputs": output}))
        result.append(_signature(servable, Method.CLASSIFY.value, Method.CLASSIFY, {"scores": output}))
    return {signature.name: signature for signature in result}


def signature_definitions(servable: Servable) -> dict[str, Any]:
    """Return every signature as in the model's metadata, a `SignatureDef` in JSON, by name."""
    return {
        name: {
            "inputs": _tensor_infos(signature.inputs) if signature.method is Method.PREDICT else {"inputs": _EXAMPLES},
            "outputs": _tensor_infos(signature.outputs),
            "method_name": signature.method.value,
            "defaults": {},
        }
        for name, signature in signatures(servable).items()
    }


def find_signature(servable: Servable, name: str, method: Method) -> Signature:
    """Return the signature for a request; an empty name means the method's own signature, else the default signature.

    Raise UnknownSignatureError for an unknown signature of `:predict`. Raise INVALID_REQUEST for an unknown signature
    of another method, or one with another method.
    """
    if method is Method.PREDICT and name in ("", DEFAULT_SIGNATURE):
        return _default_signature(servable)
    available = signatures(servable)
    signature = available.get(name or method.value) or available.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        message = f"Expected one of {', '.join(map(repr, available))}, got {quote_value(name)}"
        raise UnknownSignatureError(message) if method is Method.PREDICT else invalid(message, SIGNATURE_NAME)
    if signature.method is not method:
        message = f"Expected a signature of method {method}, {signature.name!r} is of {signature.method}"
        raise invalid(message, SIGNATURE_NAME)
    return signature


def _default_signature(servable: Servable) -> Signature:
    return _signature(servable, DEFAULT_SIGNATURE, Method.PREDICT, {spec.name: spec for spec in servable.outputs})


def _signature(servable: Servable, name: str, method: Method, outputs: Mapping[str, TensorSpec]) -> Signature:
    inputs = {spec.name: spec for spec in servable.inputs}
    takes_tensors = servable.description.takes == "tensor"
    optional: frozenset[str] = frozenset()
    aliases: dict[str, str] = {}
    if not takes_tensors:
        aliases = {alias: spec.name for spec in servable.inputs for alias in INPUT_ALIASES.get(spec.name, ())}
    if takes_prompts(servable):
        inputs[PROMPTS] = PROMPTS_INPUT
        optional = frozenset({PROMPTS})
        aliases |= dict.fromkeys(PROMPT_NAMES, PROMPTS)
    return Signature(
        name=name,
        method=method,
        takes_tensors=takes_tensors,
        returns_tensors=servable.description.task_type is TaskType.TENSOR,
        inputs=inputs,
        optional=optional,
        aliases=aliases,
        outputs=outputs,
        labels=servable.description.labels,
    )


def _takes_examples(servable: Servable) -> bool:
    """Return whether every input has a row for each example, and the only output is a score for each example."""
    if len(servable.outputs) != 1:
        return False
    (output,) = servable.outputs
    shapes = [spec.shape for spec in (*servable.inputs, output)]
    return (
        output.datatype is Datatype.FP32
        and len(output.shape) in (1, 2)
        and all(shape and shape[0] == -1 and shape[1:].count(-1) <= 1 for shape in shapes)
    )


def _tensor_infos(specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    return {
        name: {
            "dtype": enum_name(spec.datatype),
            "tensor_shape": {"dim": [{"size": str(size), "name": ""} for size in spec.shape], "unknown_rank": False},
            "name": f"{spec.name}:0",
        }
        for name, spec in specs.items()
    }
