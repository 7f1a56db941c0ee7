"""Decode one call of Predict, Classify, Regress or MultiInference, and encode its response."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.core.protocols.kserve_v1.rows import check_names
from app.plugins.tensorflow_serving.codec import TensorFlowCodec, model_inputs
from app.plugins.tensorflow_serving.examples import example_results, example_tensors
from app.plugins.tensorflow_serving.grpc.messages import (
    encode_classifications,
    encode_regressions,
    encode_tensor,
    read_input,
    read_tensor_proto,
)
from app.plugins.tensorflow_serving.predict_tensors import TensorFormat, with_canonical_names
from app.plugins.tensorflow_serving.proto import message_class
from app.plugins.tensorflow_serving.signatures import DEFAULT_SIGNATURE, Method, Signature, find_signature
from app.plugins.tensorflow_serving.targets import MAX_VERSION, ModelTarget
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import Datatype, InputTensor, Tensor
from tasks.vision.request import IMAGE_INPUT

_ModelSpec = message_class("tensorflow.serving.ModelSpec")
_PredictResponse = message_class("tensorflow.serving.PredictResponse")
_RESULTS: Mapping[Method, tuple[str, Callable[[Sequence[Any]], Any]]] = {
    Method.CLASSIFY: ("classification_result", encode_classifications),
    Method.REGRESS: ("regression_result", encode_regressions),
}
"""The field of a `MultiInferenceResponse` for the result of each method, and how the result is encoded."""

MULTI_INFERENCE = "MultiInference"

Task = tuple[str, Method]
"""The name of a signature, which may be empty, and the method."""


def target_of(message: Any) -> ModelTarget:
    """Return the target of a message with a `ModelSpec`.

    Raise INVALID_REQUEST for a message without one, or without a name.
    """
    spec = message.model_spec
    if not spec.name:
        raise invalid("Expected the name of a model, got none", "model_spec.name")
    choice = spec.WhichOneof("version_choice")
    return ModelTarget(
        model=spec.name,
        version=spec.version.value if choice == "version" else None,
        label=spec.version_label if choice == "version_label" else None,
    )


def model_spec(name: str, version: str, signature_name: str = "") -> Any:
    """Return the `ModelSpec` of a response. Versions that are no int64 numbers are left out."""
    spec = _ModelSpec(name=name, signature_name=signature_name)
    if version.isdecimal() and int(version) <= MAX_VERSION:
        spec.version.value = int(version)
    return spec


def read_tasks(messages: Sequence[Any]) -> Sequence[Task]:
    """Return the tasks of a `MultiInferenceRequest`, which all ask one model.

    Raise INVALID_REQUEST; UNSUPPORTED for a method without examples.
    """
    names = sorted({message.model_spec.name for message in messages})
    if len(names) != 1 or not names[0]:
        raise invalid(f"Expected tasks that all name one model, got {quote_value(names)}", "tasks")
    tasks: list[Task] = []
    for index, message in enumerate(messages):
        if message.method_name not in set(_RESULTS):
            text = f"Expected one of {', '.join(_RESULTS)}, got {quote_value(message.method_name)}"
            raise InferenceError(ErrorKind.UNSUPPORTED, text, f"tasks[{index}].method_name")
        method = Method(message.method_name)
        task = (message.model_spec.signature_name or method.value, method)
        if task in tasks:
            raise invalid(f"Expected each signature once, got {task[0]} again", f"tasks[{index}]")
        tasks.append(task)
    return tasks


class PredictMessageCodec(TensorFlowCodec, kw_only=True, eq=False):
    """Decodes `message`, a `PredictRequest`, and encodes its response."""

    message: Any

    @property
    def signature_name(self) -> str:
        """Return the name of the requested signature."""
        return self.message.model_spec.signature_name or DEFAULT_SIGNATURE

    def decode(self) -> InferenceRequest:
        registration = self.find_model()
        signature = find_signature(registration.ready_servable(), self.signature_name, Method.PREDICT)
        tensors = _input_tensors(self.message.inputs, signature, self.engine.limits)
        names: Sequence[str] = self.message.output_filter
        check_names(names, (), signature.outputs, "output_filter")
        if len(set(names)) != len(names):
            raise invalid(f"Expected each output once, got {quote_value(list(names))}", "output_filter")
        return self.request(registration, model_inputs(tensors, TensorFormat.COLUMN, signature))

    def encode(self, response: InferenceResponse) -> bytes:
        wanted = set(self.message.output_filter)
        spec = model_spec(response.model_name, response.model_version, self.signature_name)
        message = _PredictResponse(model_spec=spec)
        for tensor in response.stack():
            if not wanted or tensor.name in wanted:
                message.outputs[tensor.name].CopyFrom(encode_tensor(tensor))
        return message.SerializeToString()


class ExamplesCodec(TensorFlowCodec, kw_only=True, eq=False):
    """Decodes a request with examples, and encodes a result for each task. The model runs once.

    Attributes:
        operation: `MULTI_INFERENCE`, or the name of the response of a single task, without the suffix.
        examples: the `Input`.
        tasks: what to ask the model.
        signatures: set by `decode`: the signature of each task.
        example_count: set by `decode`.
    """

    operation: str
    examples: Any
    tasks: Sequence[Task]
    signatures: Sequence[Signature] = ()
    example_count: int = 0

    def decode(self) -> InferenceRequest:
        registration = self.find_model()
        servable = registration.ready_servable()
        self.signatures = [find_signature(servable, name, method) for name, method in self.tasks]
        # All signatures of a model have the same features.
        signature = self.signatures[0]
        examples = read_input(self.examples)
        self.example_count = len(examples)
        tensors = example_tensors(examples, signature)
        return self.request(registration, model_inputs(tensors, TensorFormat.ROW, signature))

    def encode(self, response: InferenceResponse) -> bytes:
        """Encode the response. Raise INVALID_REQUEST when the model's output does not have a row for each example."""
        message = message_class(f"tensorflow.serving.{self.operation}Response")()
        for signature in self.signatures:
            field, encode = _RESULTS[signature.method]
            result = encode(example_results(response, self.example_count, signature))
            spec = model_spec(response.model_name, response.model_version, signature.name)
            if self.operation == MULTI_INFERENCE:
                message.results.add(model_spec=spec, **{field: result})
            else:
                message.MergeFrom(type(message)(model_spec=spec, result=result))
        return message.SerializeToString()


def _input_tensors(messages: Mapping[str, Any], signature: Signature, limits: Limits) -> Mapping[str, InputTensor]:
    inputs = with_canonical_names(messages, signature)
    check_names(inputs, signature.required, signature.optional, "inputs")
    tensors = {name: read_tensor_proto(name, inputs[name], limits) for name in signature.inputs if name in inputs}
    for name, tensor in tensors.items():
        datatype = tensor.datatype if isinstance(tensor, Tensor) else Datatype.BYTES
        expected_datatype = signature.inputs[name].datatype
        # Pixels may replace an encoded image.
        is_pixels = not signature.takes_tensors and name == IMAGE_INPUT.name
        if datatype is not expected_datatype and not is_pixels:
            raise invalid(f"Expected {expected_datatype}, got {datatype}", name)
    return tensors
