"""Decode one request of `:predict`, `:classify` or `:regress`, and encode its response."""

from collections.abc import Sequence

from app.engine.models.registry import Registry
from app.protocols.inference_call import HttpAnswer
from app.protocols.tensorflow_serving.document import read_object
from app.protocols.tensorflow_serving.examples import example_results, example_tensors, read_examples
from app.protocols.tensorflow_serving.grpc.predict_tensors import TensorFormat, encode, read_tensors
from app.protocols.tensorflow_serving.inputs import RequestCodec, model_inputs
from app.protocols.tensorflow_serving.paths import ModelTarget
from app.protocols.tensorflow_serving.signatures import Method, Signature, example_signature, predict_signature
from app.protocols.tensorflow_serving.values import json_document
from tasks.inference.error import ErrorKind, invalid
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse

_METHODS = {"classify": Method.CLASSIFY, "regress": Method.REGRESS}


class TensorFlowRequestCodec(RequestCodec):
    """Decodes a request, and encodes its response in the same form.

    Checks run in the order of the real server: JSON, examples, model, signature, tensors.

    Args:
        registry: holds the models.
        target: the target of the path.
        body: the request's body.
        limits: limits for the JSON.
        loading_error: the kind of error while the model loads.
        headers: further headers of the response.
    """

    def __init__(
        self,
        registry: Registry,
        target: ModelTarget,
        body: bytes,
        limits: Limits,
        loading_error: ErrorKind,
        headers: Sequence[tuple[str, str]],
    ) -> None:
        super().__init__(registry, target, loading_error)
        self._body = body
        self._limits = limits
        self._headers = headers
        self._format = TensorFormat.ROW
        self._signature: Signature | None = None
        self._example_count = 0

    def decode(self) -> InferenceRequest:
        document = read_object(self._body, self._limits)
        name = document.get("signature_name", "")
        if not isinstance(name, str):
            raise invalid("'signature_name' key must be a string value.")
        verb = self.target.verb
        if verb == "predict":
            registration = self.find_model()
            self._signature = signature = predict_signature(registration.ready_servable(), name)
            tensors, self._format = read_tensors(document, signature)
        else:
            examples = read_examples(document)
            registration = self.find_model()
            self._signature = signature = example_signature(registration.ready_servable(), name, _METHODS[verb])
            tensors, self._example_count = example_tensors(examples, signature), len(examples)
        return self.request(registration, model_inputs(tensors, self._format, signature))

    def encode(self, response: InferenceResponse) -> HttpAnswer:
        """Encode the response.

        Raises:
            InferenceError: INVALID_REQUEST for outputs that cannot be written in the requested form.
        """
        if self._example_count and self._signature is not None:
            content = json_document("results", example_results(response, self._example_count, self._signature))
        else:
            content = encode(response, self._format)
        return HttpAnswer(content=content, headers=self._headers)
