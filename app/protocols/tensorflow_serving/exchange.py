"""Decode one request of `:predict`, `:classify` or `:regress`, and encode its response."""

import time
from collections.abc import Sequence

from app.engine.registry import Registration, Registry
from app.protocols.tensorflow_serving.document import format_error, read_object
from app.protocols.tensorflow_serving.examples import encode_results, example_tensors, read_examples
from app.protocols.tensorflow_serving.inputs import model_inputs
from app.protocols.tensorflow_serving.lookup import servable_for
from app.protocols.tensorflow_serving.paths import Address
from app.protocols.tensorflow_serving.predicting import Form, encode, read_tensors
from app.protocols.tensorflow_serving.signatures import Method, Signature, example_signature, predict_signature
from tasks.exchange.error import ErrorKind
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import InputTensor

__all__ = ("Exchange",)

_METHODS = {"classify": Method.CLASSIFY, "regress": Method.REGRESS}


class Exchange:
    """Decodes a request, and encodes its response in the same form.

    Checks run in the order of the real server: JSON, examples, model, signature, tensors.

    Args:
        registry: holds the models.
        address: the target of the path.
        body: the request's body.
        limits: limits for the JSON.
        if_loading: the kind of error while the model loads.

    Attributes:
        inputs: the decoded inputs; empty before.
        platform: the platform of the model; empty before the request is decoded.
        model_time: nanoseconds between decoding and encoding.
    """

    def __init__(
        self,
        registry: Registry,
        address: Address,
        body: bytes,
        limits: Limits | None = None,
        if_loading: ErrorKind = ErrorKind.MODEL_NOT_FOUND,
    ) -> None:
        self.inputs: Sequence[InputTensor] = ()
        self.platform = ""
        self.model_time = 0
        self._registry = registry
        self._address = address
        self._body = body
        self._limits = limits
        self._if_loading = if_loading
        self._form = Form.ROW
        self._signature: Signature | None = None
        self._count = 0
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
        if self._address.verb == "predict":
            registration = servable_for(self._registry, self._address, self._if_loading)
            self._signature = signature = predict_signature(registration.ready_servable(), name)
            tensors, self._form = read_tensors(document, signature)
        else:
            examples = read_examples(document)
            registration = servable_for(self._registry, self._address, self._if_loading)
            method = _METHODS[self._address.verb]
            self._signature = signature = example_signature(registration.ready_servable(), name, method)
            tensors, self._count = example_tensors(examples, signature), len(examples)
        return self._request(registration, model_inputs(tensors, self._form, signature))

    def encode(self, response: InferenceResponse) -> bytes:
        """Encode the response.

        Raises:
            InferenceError: INVALID_REQUEST for outputs that cannot be written in the requested form.
        """
        self.model_time = time.perf_counter_ns() - self._started
        if self._count and self._signature is not None:
            return encode_results(response, self._count, self._signature)
        return encode(response, self._form)

    def _request(self, registration: Registration, inputs: tuple[InputTensor, ...]) -> InferenceRequest:
        self.inputs = inputs
        self.platform = registration.ready_servable().description.platform
        self._started = time.perf_counter_ns()
        return InferenceRequest(
            id="", model_name=registration.source.name, model_version=registration.source.version, inputs=inputs
        )
