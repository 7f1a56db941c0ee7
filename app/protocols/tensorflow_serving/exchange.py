"""One request of `:predict`, `:classify` or `:regress`, from its body to the body of its answer."""

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
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import InputTensor

__all__ = ("Exchange",)

_METHODS = {"classify": Method.CLASSIFY, "regress": Method.REGRESS}


class Exchange:
    """Reads a request, and remembers what its answer has to look like.

    The order of the checks is that of the real server: JSON, examples, model, signature, tensors.

    Args:
        registry: where the model is looked up.
        address: what the path asks for.
        body: of the request.
        limits: how much JSON it may be.

    Attributes:
        inputs: what the model was given, once it is read.
        platform: of the model that answered, empty until it has.
        model_time: nanoseconds between reading and writing.
    """

    def __init__(self, registry: Registry, address: Address, body: bytes, limits: Limits | None = None) -> None:
        self.inputs: Sequence[InputTensor] = ()
        self.platform = ""
        self.model_time = 0
        self._registry = registry
        self._address = address
        self._body = body
        self._limits = limits
        self._form = Form.ROW
        self._signature: Signature | None = None
        self._count = 0
        self._begun = 0

    def decode(self) -> InferenceRequest:
        """The request in neutral terms.

        Raises:
            InferenceError: whatever is wrong with it, in the words of the real server.
        """
        document = read_object(self._body, self._limits)
        name = document.get("signature_name", "")
        if not isinstance(name, str):
            raise format_error(document, "not formatted correctly. 'signature_name' key must be a string value.")
        if self._address.verb == "predict":
            registration = servable_for(self._registry, self._address)
            self._signature = signature = predict_signature(registration.ready_servable(), name)
            tensors, self._form = read_tensors(document, signature)
        else:
            examples = read_examples(document)
            registration = servable_for(self._registry, self._address)
            method = _METHODS[self._address.verb]
            self._signature = signature = example_signature(registration.ready_servable(), name, method)
            tensors, self._count = example_tensors(examples, signature), len(examples)
        return self._request(registration, model_inputs(tensors, self._form, signature))

    def encode(self, response: InferenceResponse) -> bytes:
        """The body of the answer.

        Raises:
            InferenceError: INVALID_REQUEST for an answer that cannot be written in the form asked for.
        """
        self.model_time = time.perf_counter_ns() - self._begun
        if self._count and self._signature is not None:
            return encode_results(response, self._count, self._signature)
        return encode(response, self._form)

    def _request(self, registration: Registration, inputs: tuple[InputTensor, ...]) -> InferenceRequest:
        self.inputs = inputs
        self.platform = registration.ready_servable().description.platform
        self._begun = time.perf_counter_ns()
        return InferenceRequest(
            id="", model_name=registration.source.name, model_version=registration.source.version, inputs=inputs
        )
