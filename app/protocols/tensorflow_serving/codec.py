"""Decode one request of `:predict`, `:classify` or `:regress`, and encode its response."""

import time
from collections.abc import Sequence

from app.engine.registry import Registration, Registry
from app.protocols.tensorflow_serving.document import format_error, read_object
from app.protocols.tensorflow_serving.examples import encode_results, example_tensors, read_examples
from app.protocols.tensorflow_serving.inputs import model_inputs
from app.protocols.tensorflow_serving.lookup import find_ready_version
from app.protocols.tensorflow_serving.paths import ModelTarget
from app.protocols.tensorflow_serving.predict_tensors import TensorFormat, encode, read_tensors
from app.protocols.tensorflow_serving.signatures import Method, Signature, example_signature, predict_signature
from tasks.inference.error import ErrorKind
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import InputTensor

__all__ = ("TensorFlowRequestCodec",)

_METHODS = {"classify": Method.CLASSIFY, "regress": Method.REGRESS}


class TensorFlowRequestCodec:
    """Decodes a request, and encodes its response in the same form.

    Checks run in the order of the real server: JSON, examples, model, signature, tensors.

    Args:
        registry: holds the models.
        target: the target of the path.
        body: the request's body.
        limits: limits for the JSON.
        loading_error: the kind of error while the model loads.

    Attributes:
        inputs: the decoded inputs; empty before.
        platform: the platform of the model; empty before the request is decoded.
        model_nanoseconds: nanoseconds between decoding and encoding.
    """

    def __init__(
        self,
        registry: Registry,
        target: ModelTarget,
        body: bytes,
        limits: Limits | None = None,
        loading_error: ErrorKind = ErrorKind.MODEL_NOT_FOUND,
    ) -> None:
        self.inputs: Sequence[InputTensor] = ()
        self.platform = ""
        self.model_nanoseconds = 0
        self._registry = registry
        self._target = target
        self._body = body
        self._limits = limits
        self._loading_error = loading_error
        self._format = TensorFormat.ROW
        self._signature: Signature | None = None
        self._example_count = 0
        self._started = 0

    def decode(self) -> InferenceRequest:
        """Return the neutral request.

        Raises:
            InferenceError: any error, with the real server's message.
        """
        document = read_object(self._body, self._limits)
        name = document.get("signature_name", "")
        if not isinstance(name, str):
            raise format_error(document, "not formatted correctly. 'signature_name' key must be a string value.")
        if self._target.verb == "predict":
            registration = find_ready_version(self._registry, self._target, self._loading_error)
            self._signature = signature = predict_signature(registration.ready_servable(), name)
            tensors, self._format = read_tensors(document, signature)
        else:
            examples = read_examples(document)
            registration = find_ready_version(self._registry, self._target, self._loading_error)
            method = _METHODS[self._target.verb]
            self._signature = signature = example_signature(registration.ready_servable(), name, method)
            tensors, self._example_count = example_tensors(examples, signature), len(examples)
        return self._request(registration, model_inputs(tensors, self._format, signature))

    def encode(self, response: InferenceResponse) -> bytes:
        """Encode the response.

        Raises:
            InferenceError: INVALID_REQUEST for outputs that cannot be written in the requested form.
        """
        self.model_nanoseconds = time.perf_counter_ns() - self._started
        if self._example_count and self._signature is not None:
            return encode_results(response, self._example_count, self._signature)
        return encode(response, self._format)

    def _request(self, registration: Registration, inputs: tuple[InputTensor, ...]) -> InferenceRequest:
        self.inputs = inputs
        self.platform = registration.ready_servable().description.platform
        self._started = time.perf_counter_ns()
        return InferenceRequest(
            id="", model_name=registration.source.name, model_version=registration.source.version, inputs=inputs
        )
